"""Figures of a machine that makes a plan easy to calculate by hand."""

from backoffice.capacity.figures import Cost, Figures, Operation

FIGURES = Figures(
    machine="2 cores of a processor",
    cores=2,
    measured_on="2026-11-11",
    costs={
        **{work: Cost(100, 0, 10, 0) for work in Operation},
        Operation.SIGN_IN: Cost(400_000, 0, 0, 0),
        Operation.RECEIPT_PAGE: Cost(5_000, 0, 30, 300),
        Operation.WIN: Cost(100, 40, 20, 50),
    },
    wins_per_s=5_000,
    refusals_per_s=8_000,
    lag_s=0.1,
    rows_per_s=10_000,
    unit_bytes=200,
)
