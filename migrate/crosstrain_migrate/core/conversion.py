"""The conversion of one script: plans all edits, makes them, and drops what fails a check.

The core is made whole or not at all. Every other group of edits stands alone: one that cannot be placed, or whose result
fails a check, is left out with a note, and the rest is made (CONVERT.md, principle 4).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from crosstrain_migrate.results import Change, Finding, RoleFact, Severity
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.checks import check_result
from crosstrain_migrate.syntax.edit_plan import EditNotApplied
from crosstrain_migrate.syntax.layout import wrapped
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.rewrite import rewrite

from .distributed import mapping
from .distributed.flags import tell_ranks
from .distributed.group import late_start, plan_mpi
from .distributed.mapping import BeforeSpawn
from .distributed.wrappers import has_wrapper, note_statistics, plan_data_parallel
from .numbers.coins import Coins, note_seeds
from .numbers.dealing import Evaluations
from .numbers.deciding import Decisions
from .numbers.merging import Merging
from .numbers.running import note_running_numbers
from .numbers.shares import plan_shares
from .numbers.shown import plan_shown_losses
from .numbers.training_numbers import TrainingNumbers
from .output.all_output import Output
from .placing.accelerator import Accelerators
from .placing.choice import device_choice
from .placing.cuda_alone import note_moves_with_cuda
from .placing.devices import Devices
from .placing.host_reads import note_unseen_reads, plan_host_reads, plan_left_on_cpu
from .placing.known import Choice, frames_to_training
from .placing.loaded import plan_loaded
from .placing.lost import NOT_KEPT
from .placing.made_tensors import (
    is_made_on_cpu,
    plan_given_to_wrapped,
    plan_made_beside,
    plan_made_tensors,
    stays_on_cpu,
)
from .placing.visible import note_late_choices, plan_visible
from .placing.where_chosen import earliest, lifted
from .placing.with_number import below_visible, with_number
from .plan import CORE, OURS, Plan, finding_at
from .reading.differing import Differing
from .reading.draws import draws_batches
from .reading.imported import uses_accelerate
from .reading.in_step import InStep
from .reading.roles import Roles, Stepped
from .reading.script import Script
from .reading.workers import reads_in_order
from .refusals import known_wrong, not_in_accelerate
from .training.backward import note_apex, plan_backward, plan_clipping, plan_reduction
from .training.counted_batches import plan_counts
from .training.counted_rows import plan_counted_rows
from .training.gpu_batches import plan_gpu_batches
from .training.kept_state import note_carried_state, note_kept_state
from .training.local_passes import plan_local_passes
from .training.losses import loss_of, sums_over_rows
from .training.observed import Seen
from .training.prepare import Preparing
from .training.queued import plan_queued, queued
from .training.schedules import plan_counted_rates
from .training.taken import plan_dataset_length, plan_taken_batches
from .training.told import plan_counted_epochs
from .training.worker_seeds import drawn_seeds, plan_worker_seeds, seed_themselves
from .unseen import handed_over, note_unread, trains_in_wrapper, unseen_training, written_for_accelerate

SAME_DATA = "CT902"
UNSHARED = "every process trains on the same data: no loop over batches was found"
SHARE = "iterate a DataLoader, or share the rows yourself by `accelerator.process_index`"
CHECKS = "CT001"
Allows = Callable[[str, ast.AST], bool]
KeptAway = Callable[[Iterable[e.Edit]], Iterable[Finding]]


@dataclass(frozen=True)
class Conversion:
    """What became of a script: the new text, or the old one with the reason."""

    text: str
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    roles: tuple[RoleFact, ...] = ()
    trains: bool = False


def nothing_kept_away(edits: Iterable[e.Edit]) -> tuple[Finding, ...]:
    """No selection and no comment forbids a part of the core."""
    return ()


def convert(
    text: str,
    runtime: str,
    allows: Allows,
    kept_away: KeptAway = nothing_kept_away,
    seen: Seen | None = None,
    *,
    in_spite: bool = False,
) -> Conversion:
    """Converts a script, or a program of several files.

    allows: whether a rule may act at a node. kept_away: why edits of the core must not be made. seen: what a run has shown.
    in_spite: convert what is known to be wrong to convert, for a person who goes on from there.
    """
    script = Script(text)
    if script.entry in script.converted or uses_accelerate(script.tree):
        return Conversion(text, findings=tuple(written_for_accelerate(script.tree)))
    roles = Roles(script)
    if not roles.trains and not trains_in_wrapper(script):
        return Conversion(text, findings=tuple(unseen_training(script)))
    if roles.trains_no_model and not draws_batches(script, roles):
        reason = "no model trains here, but tensors that the script makes: each process would do the same"
        said = finding_at(
            roles.optimizers[0].call, SAME_DATA, reason, "nothing needs to be done", Severity.NOTE
        )
        return Conversion(text, findings=(said,))
    if over := handed_over(script, roles.frames):
        return Conversion(text, findings=tuple(over))
    if not in_spite and (refused := known_wrong(script, roles)):
        return Conversion(text, findings=tuple(refused), trains=True)
    plan = _planned(script, roles, runtime, seen)
    if runtime != OURS and (unsaid := not_in_accelerate(plan, roles)):
        return Conversion(text, findings=tuple(unsaid), roles=_roles(roles), trains=True)
    if forbidden := kept_away([one for one in plan.edits if one.transaction == CORE]):
        return Conversion(text, findings=tuple(forbidden), roles=_roles(roles), trains=True)
    plan.edits = [one for one in plan.edits if one.transaction == CORE or allows(one.rule, one.node)]
    after, dropped = _made(text, plan.edits)
    if after is None:
        reason = f"the result did not pass the tool's own checks ({'; '.join(dropped)})"
        finding = Finding(
            CHECKS, 1, 1, reason, "report this script to us; it was left unchanged", Severity.REFUSED
        )
        return Conversion(text, findings=(finding,), roles=_roles(roles), trains=True)
    left = [_left_out(group, plan.edits) for group in dropped]
    made = [one for one in plan.edits if one.reason and one.transaction not in dropped]
    changes = {Change(one.rule, one.line, one.reason, one.confidence) for one in made}
    findings = (*(f for f in plan.notes() if allows(f.rule, script.entry)), *left)
    ordered = tuple(sorted(changes, key=lambda c: (c.line, c.rule, c.reason)))
    return Conversion(after, ordered, findings, _all_roles(roles, plan), trains=True)


def _planned(script: Script, roles: Roles, runtime: str, seen: Seen | None) -> Plan:
    """Every edit that is wanted, and every note; the first accelerator on the way to the training has the script's choice."""
    mapped = mapping.distributes_itself(script)
    first = Accelerators(Plan(script, runtime), roles, None, [], mapped=mapped)
    begin = first.statement(first.home)
    choice = device_choice(script, roles, first.home, begin, mapped=mapped)
    if runtime != OURS:  # Accelerate cannot be told a device
        choice = None if choice is None else replace(choice, device="")
    elif not mapped or late_start(script, frames_to_training(script, roles, first.home)) is None:
        numbered = with_number(script, roles, choice, first.home, begin, mapped=mapped)
        choice = below_visible(script, numbered)
    plan, is_late = _planned_by(script, roles, runtime, seen, choice)
    while is_late and choice is not None:
        above = below_visible(script, lifted(script, choice))
        choice = above or (Choice("", choice.frame, choice.before) if choice.code else None)
        plan, is_late = _planned_by(script, roles, runtime, seen, choice)
    if choice is not None and plan.begins_early:
        sooner = lifted(script, choice) or earliest(script, choice)
        again, is_late = _planned_by(script, roles, runtime, seen, below_visible(script, sooner))
        plan = plan if is_late else again
        # An object that is told its device too late.
        if plan.begins_early and script.class_of(choice.frame) is not None:
            plan, _ = _planned_by(script, roles, runtime, seen, replace(choice, code="", device=""))
    return plan


def _planned_by(
    script: Script, roles: Roles, runtime: str, seen: Seen | None, choice: Choice | None
) -> tuple[Plan, bool]:
    """The plan by a choice, and whether another accelerator is made before the one that has it."""
    plan = Plan(script, runtime)
    mapped = mapping.distributes_itself(script)
    taken = queued(script, roles) if runtime == OURS and not mapped else []
    own = taken or draws_batches(script, roles) or seed_themselves(script)
    same_data = not (mapped or roles.data or own)
    seeds = drawn_seeds(script) if same_data else []
    same_data = same_data and not seeds
    options = [] if mapped or same_data else plan_reduction(plan, roles, seen)
    options += [] if mapped else _options(plan, roles)
    if choice is not None and not choice.code and not choice.device:
        plan.note("CT105", choice.before, NOT_KEPT, "use `crosstrain launch --cpu`")
        choice = None
    if mapped and choice is None:
        home = Accelerators(Plan(script, runtime), roles, None, [], mapped=True).home
        choice = late_start(script, frames_to_training(script, roles, home))
    accelerators = Accelerators(plan, roles, choice, options, mapped=mapped)
    plan_worker_seeds(plan, seeds)
    if taken and not plan_queued(plan, accelerators, taken):
        same_data = True
    if mapped:  # their own meaning on several processes is the script's reference
        roles.data = [one for one in roles.data if mapping.is_shared_out(script, one)]
    evaluations = None if mapped else Evaluations(script, roles)
    phases = evaluations.phases if evaluations is not None else []
    preparing = Preparing(plan, roles, accelerators, phases)
    wraps = mapped and has_wrapper(script)
    if wraps:  # the wrapper averages what is to be alike
        roles.optimizers = [o for o in roles.optimizers if not mapping.trains_own_part(script, roles, o)]
    of_one = mapped and mapping.is_of_one(script)
    preparing.run(models=not wraps, loaders=not wraps or of_one, schedulers=not mapped)
    dealt: list[ast.For] = []
    saved_apart: list[ast.AST] = []
    if not (same_data and sums_over_rows(script, roles)):  # equal gradients must be averaged, not added
        plan_backward(plan, roles, accelerators)
    note_apex(plan)
    plan_data_parallel(plan, accelerators)
    note_statistics(plan)
    if evaluations is None:
        steps = mapping.Mapping(plan, accelerators)
        steps.run()
        Devices(plan, accelerators, steps.ordinals).run()
        plan_given_to_wrapped(plan, accelerators)
    else:
        dealt, saved_apart = _plan_numbers(plan, roles, accelerators, evaluations)
    plan_mpi(plan)
    if mapped:
        _plan_mapped_output(plan, accelerators, of_one)
    if evaluations is not None:
        _plan_shown(plan, roles, accelerators, dealt)
        training = [*roles.frames, *(one.frame for one in roles.data), *map(script.frame, evaluations.loops)]
        Output(plan, accelerators, training, dealt, saved_apart).run()
    if same_data:
        plan.note(SAME_DATA, roles.backwards[0].call, UNSHARED, SHARE)
    note_unread(plan)
    note_late_choices(plan, accelerators)
    plan.leave_converted()
    plan.drop_unused_imports()
    plan.in_words_of_files()
    plan.begins_early = not mapped and accelerators.is_begun()
    return plan, not mapped and accelerators.comes_late()


def _plan_mapped_output(plan: Plan, accelerators: Accelerators, of_one: bool) -> None:
    """What one process says and writes, and sees of the GPUs, in a script that distributes itself; of_one: to one process."""
    first = BeforeSpawn(plan.script)
    if of_one:
        plan_visible(plan, accelerators)
    if first.spawns or first.of_one:  # what the first process did alone
        Output(plan, accelerators, [], [], [], first.holds).run()
    Output(plan, accelerators, [], [], []).plan_shared_folders(first.is_alone)


def _options(plan: Plan, roles: Roles) -> list[str]:
    """What the accelerators are told where their author knew of one process."""
    options = ["cpu=True"] if stays_on_cpu(plan.script, roles) else []
    if plan.runtime == OURS and reads_in_order(plan.script):
        options.append("dispatch_batches=True")
    return options


def _plan_shown(plan: Plan, roles: Roles, accelerators: Accelerators, dealt: list[ast.For]) -> None:
    """What the processes clip, keep and show, where their author knew of one."""
    plan_local_passes(plan, roles, dealt)
    plan_clipping(plan, accelerators)
    note_carried_state(plan, roles.data)
    note_kept_state(plan, roles)
    note_seeds(plan, roles)
    plan_shown_losses(plan, roles, accelerators, dealt)
    note_running_numbers(plan, roles)
    plan_visible(plan, accelerators)
    tell_ranks(plan)


def _plan_numbers(
    plan: Plan, roles: Roles, accelerators: Accelerators, evaluations: Evaluations
) -> tuple[list[ast.For], list[ast.AST]]:
    """The evaluations, the numbers of training, and what is decided by them: the loops that are dealt, and the tests by
    which each process would save at a time of its own."""
    merging = Merging(plan, evaluations, accelerators)
    merging.run()
    plan_counted_rates(plan, roles, accelerators)
    plan_counted_epochs(plan, roles, accelerators)
    plan_dataset_length(plan, roles, accelerators)
    plan_counted_rows(plan, roles, accelerators)
    plan_gpu_batches(plan, accelerators)
    plan_counts(plan, roles, accelerators, merging.names | merging.of_phases)
    plan_taken_batches(plan)
    numbers = TrainingNumbers(plan, roles, accelerators, merging.of_phases)
    numbers.run(merging.loops)
    plan_shares(plan, roles, accelerators, evaluations.phases)
    alike = merging.alike | numbers.alike
    differing = Differing(plan.script, roles, evaluations, alike, plan.models)
    if plan.runtime == OURS:
        Coins(plan, roles, accelerators, differing).run()
    saved_apart = Decisions(plan, roles, accelerators, differing).run()
    devices = Devices(plan, accelerators)
    devices.run()
    plan_loaded(plan, accelerators)
    code = InStep(plan.script, evaluations.loops, [one.frame for one in roles.data if one.loop is None])
    plan_host_reads(plan, code)
    placed = [one.loop for one in roles.data if one.loop is not None]
    plan_left_on_cpu(plan, roles.data, merging.loops)
    note_moves_with_cuda(plan, InStep(plan.script, [*placed, *merging.loops]))
    if roles.data and is_made_on_cpu(plan.script):
        if not stays_on_cpu(plan.script, roles):
            note_unseen_reads(plan, code)
            plan_made_tensors(plan, code, devices.edits, evaluations.trained)
    else:
        plan_made_beside(plan, code, set(roles.frames))
        plan_given_to_wrapped(plan, accelerators)
    return merging.loops, saved_apart


def _made(text: str, edits: list[e.Edit]) -> tuple[str | None, list[str]]:
    """The new text and the groups that were left out; None and the problems where not even the core can be made."""
    groups = list(dict.fromkeys(one.transaction for one in edits if one.transaction != CORE))
    whole, problems = _attempt(text, edits, groups)
    if whole is not None:
        return whole, []
    core, problems = _attempt(text, edits, [])
    if core is None:
        return None, problems
    kept: list[str] = []
    best = core
    for group in groups:
        attempt, _ = _attempt(text, edits, [*kept, group])
        if attempt is not None:
            kept, best = [*kept, group], attempt
    return best, [group for group in groups if group not in kept]


def _attempt(text: str, edits: list[e.Edit], groups: list[str]) -> tuple[str | None, list[str]]:
    wanted = [one for one in edits if one.transaction == CORE or one.transaction in groups]
    try:
        after = wrapped(text, rewrite(text, wanted))
    except EditNotApplied as error:
        return None, [str(error)]
    problems = check_result(text, after)
    return (None, problems) if problems else (after, [])


def _left_out(group: str, edits: list[e.Edit]) -> Finding:
    first = next(one for one in edits if one.transaction == group)
    reason = f"left as it is: the edits of {group} did not pass the tool's own checks"
    return Finding(first.rule, line_of(first.node) or 1, 1, reason, "report this script to us", Severity.NOTE)


def roles_in(text: str) -> list[RoleFact]:
    """Who is what in a script, and how that is known: what a conversion goes by. Raises what parsing raises."""
    script = Script(text)
    roles = Roles(script)
    if not roles.trains:
        return []
    losses = [
        RoleFact(script.source(loss), "loss", call.lineno, "this line goes backward through it")
        for call in (one.call for one in roles.backwards)
        if (loss := loss_of(call)) is not call.func
    ]
    plan = _planned(script, roles, OURS, None)
    return sorted({*_all_roles(roles, plan), *losses}, key=lambda role: (role.line, role.name, role.role))


def _roles(roles: Roles) -> tuple[RoleFact, ...]:
    """Who is what, for the reports."""
    source, optimizers = roles.script.source, roles.optimizers
    steps = [(one, one.call.lineno) for one in optimizers]
    found = [RoleFact(one.text, "optimizer", n, f"line {n} steps it after a backward") for one, n in steps]
    read = [(data.node, data.node.lineno) for data in roles.data]
    found += [
        RoleFact(source(one), "training loader", n, f"the loop of line {n} trains on it") for one, n in read
    ]
    found += [
        _module(roles, one, text) for one in optimizers for text in roles.models_of(one.frame, one.text)
    ]
    steps = [(one, one.call.lineno) for one in roles.schedulers]
    found += [RoleFact(one.text, "scheduler", n, f"line {n} steps it") for one, n in steps]
    return tuple(dict.fromkeys(found))


def _all_roles(roles: Roles, plan: Plan) -> tuple[RoleFact, ...]:
    """The same, with the models that are prepared where the function that trains them is called."""
    found = _roles(roles)
    known = {fact.name for fact in found if fact.role == "module"}
    prepared = [
        RoleFact(text, "module", line_of(use), f"line {line_of(use)} trains with it")
        for text, use in plan.models
        if text not in known
    ]
    return tuple(dict.fromkeys((*found, *prepared)))


def _module(roles: Roles, optimizer: Stepped, text: str) -> RoleFact:
    """A model, at the place that binds it, and the optimizer that is given its parameters."""
    script, frame = roles.script, optimizer.frame
    made = script.values(frame, optimizer.text)
    bound = script.stores(frame, text)
    line = line_of(bound[0] if bound else made[0])
    return RoleFact(text, "module", line, f"line {line_of(made[0])} gives its parameters to an optimizer")
