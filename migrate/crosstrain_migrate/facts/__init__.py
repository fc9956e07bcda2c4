"""Understanding: who is what in a training script, from facts and never from names.

In: a tree of `syntax`, with its scopes. Out: `Facts`, the one object that rules ask. The rules and whatever stands
above them may import this room; it imports `syntax` alone.

Names: `syntax` resolves them, `constants` says which options are known. Values: `values` are the abstract values,
`memory` holds them, `widening` keeps them few. Meaning: `statements`, `expressions`, `attributes`, `iteration` and
`calls` say what each construct makes of them; `tensors` how a batch's share becomes a mean, a sum or a count;
`torch_api` is what we know of PyTorch's functions; `regions` where the model runs, `lifetimes` what outlives a batch.
`interpretation` is the state that all of these share, and `infer` runs them to a fixpoint. `code`, `losses` and `facts`
answer the rules' questions.
"""
