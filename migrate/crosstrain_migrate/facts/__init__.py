"""What each value is in a training script: known from facts, never from names.

In: a tree of `syntax`, with its scopes. Out: `Facts`, the one object that rules ask. The rules and whatever stands
above them may import this room; it imports `syntax` alone.

`syntax` resolves the names; `constants` knows the options that do not change. `values` are the abstract values, `memory`
holds them, `widening` keeps them few. `statements`, `expressions`, `attributes`, `iteration` and `calls` say what each
construct makes of them; `tensors` how a batch's share becomes a mean, a sum or a count; `torch_api` what is known of
PyTorch's functions; `regions` where the model runs, `lifetimes` what outlives a batch. All of these share the state of
`interpretation`, and `infer` runs them to a fixpoint. `code`, `losses` and `facts` answer the rules' questions; `slices`
says where a value comes from.
"""
