"""The benchmark ``fairness``; ``script/bench`` starts it."""

from pathlib import Path

from bench.fairness import contest, slow_bodies
from bench.fairness.guards import GUARDS
from bench.fairness.report import draw, report_on_contests, report_on_floods
from bench.sale import sign_ins
from bench.sale.plan import FULL, QUICK, options_of, plan_of
from bench.sale.report import describe
from bench.sale.run import run_on_shop

SIGN_UPS, BODIES = "sign-ups", "bodies"
PARTS = (*GUARDS, SIGN_UPS, BODIES)


def main() -> None:
    parser = options_of("fairness", parts=PARTS)
    parser.add_argument("--picture", type=Path, help="draw the attacker's shares to this SVG file")
    options = parser.parse_args()
    plan = plan_of(options, full=FULL, quick=QUICK)
    guards = [guard for name, guard in GUARDS.items() if name in options.only]
    machine = describe(plan)
    with run_on_shop(plan) as run:
        contests = contest.measure(run, guards) if guards else []
        floods = sign_ins.measure(run) if SIGN_UPS in options.only else []
        floods += slow_bodies.measure(run) if BODIES in options.only else []
    values = {
        "contests": [it.as_json() for it in contests],
        "floods": [it.cells() for it in floods],
        "machine": machine,
    }
    if contests:
        report_on_contests(contests, plan, values).publish(options)
    if floods:
        report_on_floods(floods, plan, values).publish(options)
    if options.picture and contests:
        options.picture.write_text(draw(contests, plan))


if __name__ == "__main__":
    main()
