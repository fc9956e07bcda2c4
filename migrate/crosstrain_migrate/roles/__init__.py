"""Understanding: who is what in a training script, from facts and never from names.

Names: `scopes` resolves them, `reach` says which assignments a use may read, `constants` which options are known.
Values: `values` are the abstract values, `memory` holds them, `widening` keeps them few. Meaning: `statements`,
`expressions`, `attributes`, `iteration` and `calls` say what each construct makes of them; `tensors` how a batch's
share becomes a mean, a sum or a count; `torch_api` is what we know of PyTorch's functions; `regions` where the model
runs, `lifetimes` what outlives a batch. `infer` runs it all to a fixpoint, and `facts` answers the rules' questions.
"""
