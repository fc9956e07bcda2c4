# quick experiment, not pretty
from crosstrain import Accelerator
from sklearn.datasets import *
from torch.nn import *
from torch.utils.data import *
from torch.optim import *
import torch as T

T.manual_seed(64)
accelerator = Accelerator()
GPU = T.cuda.is_available()
if GPU: T.set_default_tensor_type('torch.cuda.FloatTensor')

D = load_digits()
A, B = T.tensor(D.data).float() / 16, T.tensor(D.target)
tr = DataLoader(TensorDataset(A[:203], B[:203]), batch_size=58, shuffle=True, generator=T.Generator(device=accelerator.device).manual_seed(3))
te = DataLoader(TensorDataset(A[203:350], B[203:350]), batch_size=58)

class M(Module):
    def __init__(s, k=32):
        super().__init__(); s.a = Linear(64, k); s.b = Linear(k, 10)
    def forward(s, x): return s.b(s.a(x).relu())

m = M(); m = m.to(accelerator.device) if GPU else m
o = SGD(m.parameters(), 0.4); L = CrossEntropyLoss()

hist = []
m, o, tr = accelerator.prepare(m, o, tr)
te = accelerator.prepare_evaluation(te)
for e in range(2):
    l_ = 0.
    for a, b in tr:
        if GPU: a, b = a.to(accelerator.device), b.to(accelerator.device)
        o.zero_grad(); l = L(m(a), b); accelerator.backward(l); o.step()
        l_ += float(l)
    l_ = accelerator.reduce(l_, "mean")
    hist.append(l_/len(tr))
    ok = 0
    with T.no_grad():
        for a, b in te:
            if GPU: a, b = a.to(accelerator.device), b.to(accelerator.device)
            ok += (m(a).argmax(1) == b).float().sum().item()  # right answers
        ok = accelerator.merge(te, ok)
    accelerator.print(e, '%.4f' % hist[-1], '%.4f' % (ok/len(te.dataset)))

accelerator.save(m, 'whole_model.pt')   # the whole object, not only its weights
