"""`make golden`: writes after.py and report.json of every case anew. The review is the git diff."""

from tests.golden.cases import cases
from tests.golden.trees import regenerate, trees


def main() -> None:
    for case in cases():
        result = case.migrate()
        (case.folder / "report.json").write_text(case.report(result), encoding="utf-8")
        if case.expect == "refused":
            case.after.unlink(missing_ok=True)
        else:
            case.after.write_bytes(case.source.encode(result.after))
        outcome = "changed" if result.changed else ("refused" if result.refused else "nothing to do")
        print(
            f"{case.name:22s} {outcome}"
            + ("" if matches(case.expect, outcome) else f"   (run.toml: {case.expect})")
        )
    for tree in trees():
        made = regenerate(tree)
        print(f"{tree.name:22s} {len(made.changed)} files changed, {len(made.refused)} refused")


def matches(expect: str, outcome: str) -> bool:
    return {"converted": "changed", "nothing": "nothing to do", "refused": "refused"}[expect] == outcome


if __name__ == "__main__":
    main()
