"""CT103: the prepared model is not moved by hand
CT104: batches of prepared loaders are not moved by hand
CT105: what still needs a device gets the accelerator's

What:   `.to(device)` and `.cuda()` go from prepared modules and from batches of prepared loaders; every other use of a
        device becomes `accelerator.device`; a device that nothing uses any more goes, with its parameter.
Why:    One process drives one device, and only the launcher knows which.

Example CT103 (model):
    model = nn.Linear(8, 3)
    model.cuda()
Becomes (model):
    model = nn.Linear(8, 3)
Stays CT103 (model):
    model = nn.Linear(8, 3).to(torch.float32)
Example CT104 (batch):
    x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
Becomes (batch): nothing
Example CT105 (end):
    scale = torch.ones(8).to(device)
Becomes (device):
    accelerator = Accelerator()
    device = accelerator.device  # the fastest there is
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import argument_of, arguments_of, given, keyword_of
from crosstrain_migrate.facts.regions import in_mover
from crosstrain_migrate.facts.tensors import PERMUTATIONS, WEIGHTED_DRAWS
from crosstrain_migrate.facts.values import (
    Class,
    External,
    FromBatch,
    Function,
    Member,
    Method,
    Symbol,
    Value,
    code_of,
)
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.preparing.holders import stores
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from . import tensor_types
from .devices import BY_GPU_IDS, SELECTS_A_GPU, Devices, is_cpu, known_values
from .no_ops import NoOps
from .removed_moves import RemovedMoves
from .returns_from_cpu import comes_back

MODEL, BATCH, OTHER = "CT103", "CT104", "CT105"
COPIES = frozenset({"copy.deepcopy", api.AVERAGED})


class Placement(RemovedMoves):
    """Plans every device edit of a script."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.portable: set[ast.AST] = set()  # calls of .cuda() that now name the accelerator's device
        self.options: list[ast.expr] = []  # command-line options that said where, and do not any more
        self.devices = Devices(context.facts)

    def plan(self) -> None:
        self._moving_helpers()
        for call in self.facts.calls:
            moves = isinstance(call.func, ast.Attribute) and call.func.attr in {"to", "cuda"}
            if moves and call not in self.gone:
                self._moving_call(call)
        tensor_types.plan(self.context, lambda owner: self._strippable(owner) == BATCH)
        NoOps(self).plan()
        self._uses()

    # -- calls that move -------------------------------------------------------------------------------------

    def _moving_call(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        device = self._device_argument(call)
        if call.func.attr == "to" and (device is None or is_cpu(device)):
            return
        owner = call.func.value
        # A helper that moves its argument may serve other callers, too, unless it goes as a whole.
        rule = None if in_mover(self.facts.interp, call) else self._strippable(owner)
        if rule is not None and not (rule == MODEL and comes_back(self.facts, call)):
            self._strip(call, device, rule)
        elif call.func.attr == "cuda":
            self._portable_cuda(call)

    def _moving_helpers(self) -> None:
        """Removes `batch = to_device(batch, device)`, and the helper itself once nothing needs it."""
        interp = self.facts.interp
        for wrapper in interp.wrappers:
            self._unwrap(wrapper)
        for helper, name in interp.movers.items():
            assert isinstance(helper, ast.FunctionDef | ast.AsyncFunctionDef)
            callers = self.facts.callers.get(helper, ())
            used = [s for s in callers if self.facts.enclosing_function(s) not in interp.movers]
            sites = [s for s in used if s not in self.gone]
            assert isinstance(helper, FunctionNode)
            for site in sites:
                moved = self.facts.passed(site, helper, name)
                rule = self._strippable(moved) if moved is not None else None
                if moved is not None and rule is not None:
                    self._strip_helper(site, moved, rule)
            if used and all(s in self.stripped for s in sites) and helper not in interp.escaped:
                self._drop_helper(helper)

    def _unwrap(self, wrapper: ast.AST) -> None:
        """`DeviceLoader(loader, device)` becomes the loader; the class goes once nothing needs it."""
        assert isinstance(wrapper, ast.ClassDef)
        init = self.facts.interp.method(wrapper, "__init__")
        assert init is not None  # a wrapper has one
        sites = [c for c in self.facts.calls if Class(wrapper) in self.facts.of(c.func)]
        for site in sites:
            moved = argument_of(site, init, self.facts.interp.wrappers[wrapper], True)
            if moved is not None and self._is_shared_loader(moved):
                self._strip_helper(site, moved, BATCH)
        reads = (n for n in self.facts.each(ast.Name, ast.Attribute) if isinstance(n.ctx, ast.Load))
        uses = [n for n in reads if Class(wrapper) in self.facts.of(n)]
        if sites and self.stripped.issuperset(sites) and len(uses) == len(sites):
            self._drop_helper(wrapper)

    def _drop_helper(self, helper: ast.AST) -> None:
        assert isinstance(helper, ast.stmt)
        self.context.remove(helper, BATCH, "nothing needs to be moved by hand any more")
        self.gone.update(walk(helper))

    def _is_shared_loader(self, node: ast.expr) -> bool:
        values = known_values(self.facts, node)
        return bool(values) and values <= self.context.subject.placing

    def _strip_helper(self, site: ast.Call, moved: ast.expr, rule: str) -> None:
        self.stripped.add(site)
        self.moved[site] = moved
        self.gone.update(n for other in arguments_of(site) if other is not moved for n in walk(other))
        self.context.replace(site, rule, _placed(rule), "{x}", x=moved)

    def _device_argument(self, call: ast.Call) -> ast.expr | None:
        device = given(call, "device", 0)
        named = device is not None and device not in call.args
        if device is None or named or self.devices.is_device(device) or self.devices.is_ordinal(device):
            return device
        return None

    def _strippable(self, owner: ast.expr) -> str | None:
        """The rule that removes a move of `owner`, because the runtime makes it; None where it does not."""
        if isinstance(owner, ast.Tuple | ast.List):  # to_device((x, y), device)
            return BATCH if {self._strippable(part) for part in owner.elts} == {BATCH} else None
        values = known_values(self.facts, owner)
        if not values:
            return None
        subject = self.context.subject
        if values <= set(subject.models):
            return None if self._copied_early(values) else MODEL
        batch_values = [v for v in values if isinstance(v, FromBatch)]
        owners = [v.receiver for v in values if isinstance(v, Member) and isinstance(v.receiver, FromBatch)]
        if batch_values and all(v.loader in subject.placing for v in (*batch_values, *owners)):
            # Only what the loader itself yields is on the device already; a new tensor of its size is not.
            return BATCH if self._made_by_loader(owner, frozenset()) else None
        if all(isinstance(v, External) and self._weightless_loss(v) for v in values):
            return MODEL
        return None

    def _made_by_loader(self, owner: ast.AST, seen: frozenset[ast.AST]) -> bool:
        for node in walk(owner):
            if isinstance(node, ast.Name) and any(isinstance(v, FromBatch) for v in self.facts.of(node)):
                for definition in self.facts.bindings(node) - seen:
                    source = self._source_of(definition)
                    if source is not None and not self._made_by_loader(source, seen | {definition}):
                        return False
            if isinstance(node, ast.Call):
                function = self.facts.of(node.func)
                if any(isinstance(v, Symbol) and _makes_a_tensor(v.path) for v in function):
                    return False
                returned = [r for r in self._returned_by(node) if r not in seen]
                if not all(self._made_by_loader(r, seen | {r}) for r in returned):
                    return False
        return True

    def _returned_by(self, call: ast.Call) -> list[ast.expr]:
        """What the script's own functions that `call` may run return."""
        functions = [code_of(v) for v in self.facts.of(call.func) if isinstance(v, Function | Method)]
        return [
            node.value
            for function in functions
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in walk(function)
            if isinstance(node, ast.Return) and node.value is not None
        ]

    def _source_of(self, definition: ast.AST) -> ast.AST | None:
        """What a variable was assigned, or what the comprehension that binds it goes over."""
        for around in self.facts.table.ancestors(definition):
            if isinstance(around, ast.comprehension):
                return around.iter
            if isinstance(around, ast.Assign | ast.AnnAssign):
                return around.value
            if isinstance(around, ast.stmt):
                return None
        return None

    def _copied_early(self, models: set[Value]) -> bool:
        """Whether something copies the model's parameters (for an average or a second model) before `prepare` places
        the model: both must be on the device from the start."""
        facts, subject = self.facts, self.context.subject
        core = [*subject.models, *subject.optimizers, *subject.train_loaders, *facts.schedulers]
        made = [s.lineno for v in core for h in stores(facts, subject.scope, v) for s in h.stores]
        before = (call for call in facts.calls if call.lineno <= max(made, default=0))
        copying = (
            value
            for call in before
            if facts.table.of_node[call] is subject.scope
            and any(isinstance(a, ast.Name) and facts.of(a) & models for a in call.args)
            for value in facts.of(call.func)
        )
        return any(isinstance(v, Class) or (isinstance(v, Symbol) and v.path in COPIES) for v in copying)

    @staticmethod
    def _weightless_loss(value: External) -> bool:
        if not api.is_loss_class(value.path) or not isinstance(value.site, ast.Call):
            return False
        return not value.site.args and not any(k.arg in {"weight", "pos_weight"} for k in value.site.keywords)

    def _strip(self, call: ast.Call, device: ast.expr | None, rule: str) -> None:
        assert isinstance(call.func, ast.Attribute)
        reason = _placed(rule)
        others = [a for a in call.args if a is not device] + [
            k.value
            for k in call.keywords
            if k.value is not device and k.arg not in {"non_blocking", "copy", "memory_format"}
        ]
        if call.func.attr == "to" and others:  # .to(device, torch.float32) keeps its dtype
            assert device is not None
            self.context.edits.append(e.RemoveArgument(call, rule, reason, argument=device))
            self.gone.add(device)
            return
        self.stripped.add(call)
        if device is not None:
            if self.devices.is_option(device) or (rule == MODEL and self.devices.is_setting(device)):
                self.options.append(device)
            if self.devices.is_ordinal(device):
                self._report_number(device)
        self.gone.update(n for argument in arguments_of(call) for n in walk(argument))
        strip = e.Replace(call, rule, reason, template="{x}", holes={"x": call.func.value})
        # Any other edit of this expression (a gather, say) must apply to what is left of it.
        edits = self.context.edits
        place = next((number for number, edit in enumerate(edits) if edit.node is call), len(edits))
        edits.insert(place, strip)

    def _report_number(self, device: ast.expr) -> None:
        """Notes the number of a GPU, once in a script; everybody writes 0 for the first."""
        known = self.devices.single_process.value_of(device)
        reported = any(f.reason == SELECTS_A_GPU for f in self.context.findings)
        if known is not None and known.value != 0 and not reported:
            self.context.note(OTHER, device, SELECTS_A_GPU, BY_GPU_IDS)

    def _portable_cuda(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        if self.facts.targets(call) or self._follows_tensor(call):
            return
        if not self.context.has_device(call):
            tensor_types.left_behind(self.context, call)
            return
        device = self.context.device(call)
        waits = keyword_of(call, "non_blocking")
        extra = f", non_blocking={self.context.source(waits)}" if waits is not None else ""
        template = "{x}" + f".to({device}{extra})"
        self.gone.update(n for a in call.args for n in walk(a))
        self.portable.add(call)
        self.context.replace(call, OTHER, "the process's own device", template, x=call.func.value)

    def _follows_tensor(self, call: ast.Call) -> bool:
        """`window.cuda(image.get_device())`: a move to the device of another tensor."""
        asked = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if not isinstance(asked, ast.Call) or not isinstance(asked.func, ast.Attribute) or asked.args:
            return False
        if asked.func.attr != "get_device" or self.facts.targets(asked):
            return False
        assert isinstance(call.func, ast.Attribute)
        self.portable.add(call)
        moved, like = call.func.value, asked.func.value
        reason = "to where the other tensor is"
        self.context.replace(call, OTHER, reason, "{x}.to({y}.device)", x=moved, y=like)
        return True

    # -- what is left ----------------------------------------------------------------------------------------

    def _uses(self) -> None:
        """Collects the definitions of devices, and replaces devices that are written where they are used."""
        self.context.device_definitions += self.devices.definitions(self.gone)
        for node in self.facts.each(ast.keyword, ast.Call):
            if isinstance(node, ast.keyword):
                found = [node.value] if node.arg in {"device", "map_location"} else []
            else:
                takes = isinstance(node.func, ast.Attribute) and node.func.attr in {
                    "to",
                    "set_default_device",
                }
                found = node.args[:1] if takes else []
            for device in found:
                self._literal(device)
        self._loaded_models()

    def _loaded_models(self) -> None:
        """Adds `map_location=` to loads of whole models: else a model goes to the device of the process that saved it."""
        for call in self.facts.calls_to("torch.load"):
            told = len(call.args) > 1 or any(k.arg in {"map_location", None} for k in call.keywords)
            if not told and self._runs_as_model(call) and self.context.has_device(call):
                code = f"map_location={self.context.device(call)}"
                reason = "the process's own device"
                self.context.edits.append(e.InsertArgument(call, OTHER, reason, position=-1, code=code))

    def _names_a_model(self, target: ast.expr) -> bool:
        """Whether the variable, or attribute, held a prepared model before."""
        models, text = set(self.context.subject.models), ast.unparse(target)
        return any(
            isinstance(node, ast.Name | ast.Attribute)
            and models & set(values)
            and ast.unparse(node) == text
            and self.facts.table.of_node.get(node) is self.facts.table.of_node[target]
            for node, values in self.facts.interp.values.items()
        )

    def _runs_as_model(self, call: ast.Call) -> bool:
        """Whether the loaded object is called, or put into evaluation or training mode."""
        parents = self.facts.table.parents
        statement = parents.get(call)
        if not isinstance(statement, ast.Assign):
            return False
        bound = set(statement.targets)
        if any(self._names_a_model(target) for target in bound):
            return True
        for name, definitions in self.facts.interp.reaching.items():
            around = parents.get(name)
            called = isinstance(around, ast.Call) and around.func is name
            mode = isinstance(around, ast.Attribute) and around.attr in {"eval", "train"}
            if (called or mode) and definitions & bound:
                return True
        return False

    def _literal(self, node: ast.expr) -> None:
        """Replaces `device="cuda"`, `torch.device("cuda:0")` or an option, written where it is used."""
        if node in self.gone or is_cpu(node):
            return
        chosen_here = self.devices.is_device(node) and self.devices.decides(node)
        if not (chosen_here or self.devices.is_ordinal(node)) or not self.context.has_device(node):
            return
        chosen = self.devices.decided_before(node) if isinstance(node, ast.Attribute) else []
        if any(self.context.has_device(c) for c in chosen):
            return  # it is the accelerator's there
        self.gone.update(walk(node))
        self.context.replace(node, OTHER, "the process's own device", self.context.device(node))


def _makes_a_tensor(path: str) -> bool:
    """Whether a function makes a tensor on the device that its arguments name or are on: perhaps the CPU."""
    made = path.startswith("torch.") and api.last(path) in api.FACTORIES
    return made or path in PERMUTATIONS | WEIGHTED_DRAWS


def _placed(rule: str) -> str:
    return "prepare places the model" if rule == MODEL else "the prepared loader yields batches on the device"
