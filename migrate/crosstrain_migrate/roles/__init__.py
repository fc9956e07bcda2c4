"""Understanding: who is what in a training script, from facts and never from names.

`scopes` resolves names, `values` are the abstract values, `torch_api` is what we know of PyTorch's functions,
`tensors` how a batch's share becomes a mean, a sum or a count, `infer` runs it all to a fixpoint,
and `facts` answers the rules' questions.
"""
