"""The benchmark ``servers``; ``script/bench`` starts it."""

from dataclasses import replace

from bench.sale.plan import FULL, QUICK, options_of, plan_of
from bench.sale.report import describe
from bench.sale.run import run_on_shop
from bench.servers.choices import ALL, FEW
from bench.servers.rounds import measure, report_on


def main() -> None:
    options = options_of("servers").parse_args()
    full = replace(FULL, repetitions=12, shot_s=0.5, wins=1_700, warm_up=200)
    plan = plan_of(options, full=full, quick=replace(QUICK, wins=1_100))
    choices = FEW if options.tiny else ALL
    machine = describe(plan)
    with run_on_shop(plan) as run:
        rounds = measure(run, [choice for choice in choices if choice.is_installed])
    report_on(rounds, choices, machine).publish(options)


if __name__ == "__main__":
    main()
