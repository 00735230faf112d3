"""The lab's pages: the steps with their races, the experiments with their figures, and a race.

A race is played at the press of a button.

Anyone may press it, without an account: the lab is off by default, and meant for a newcomer's own
machine. The effect of a press is bounded: one race at a time for the whole server, with a few
processes and seconds, and everything is removed afterwards.
"""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from redis import RedisError

from lab.engine.database import has_row_locks
from lab.engine.fork_server import ForkServer
from lab.experiments import EXPERIMENTS
from lab.experiments.experiment import read_tables
from lab.interleaving.races import RACES, races_of
from lab.interleaving.races.race import PLAY_ERRORS, Outcome, Race, play
from lab.listing import ROOT, listing
from lab.steps import STEPS
from lab.steps.step import Step
from locks import LockBusy, RedisLock
from seckill_site.redis.ledger_connection import ledger_connection
from seckill_site.web.responses import allow, for_owner, for_visitors, unavailable

FIGURES = ROOT / "docs" / "around-the-six-steps.json"
STAGE_LOCK = "lock:{lab}:stage"


@allow("GET", "HEAD")
def index(request: HttpRequest) -> HttpResponse:
    """List the steps in the order of the story, each with its races, then the experiments."""
    steps = [{"step": step, "races": races_of(step)} for step in STEPS.values()]
    context = {"steps": steps, "experiments": EXPERIMENTS.values()}
    return for_visitors(render(request, "lab/index.html", context), request)


@allow("GET", "HEAD")
def experiment_page(request: HttpRequest, *, name: str) -> HttpResponse:
    """Show the story of an experiment, and the figures of the document."""
    if name not in EXPERIMENTS:
        raise Http404
    context = {"experiment": EXPERIMENTS[name], "table": read_tables(FIGURES).get(name)}
    return for_visitors(render(request, "lab/experiment.html", context), request)


@allow("GET", "HEAD", "POST")
def race_page(request: HttpRequest, *, step_name: str, race_name: str) -> HttpResponse:
    """Show the story of a race and the step's code; with POST, play it."""
    step, race = STEPS.get(step_name), RACES.get(race_name)
    if step is None or race is None or step.name not in race.expects:
        raise Http404
    if request.method != "POST":
        return _page(request, step, race)
    if not has_row_locks():
        return _page(request, step, race, status=409)
    try:
        with RedisLock(ledger_connection(), STAGE_LOCK), ForkServer() as server:
            outcome = play(step, race, server)
    except LockBusy:
        text = _("Another race is being played on this server. Try again in a few seconds.")
        return _page(request, step, race, notice=text, status=409)
    except PLAY_ERRORS as error:
        text = _("The race could not be played: %(error)s") % {"error": error}
        return _page(request, step, race, notice=text, status=503)
    except RedisError:
        return unavailable(request)
    return _page(request, step, race, outcome)


def _page(
    request: HttpRequest,
    step: Step,
    race: Race,
    outcome: Outcome | None = None,
    *,
    notice: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "step": step,
        "race": race,
        "others": [it for it in races_of(step) if it is not race],
        "same_race": [STEPS[name] for name in STEPS if name in race.expects and name != step.name],
        "excerpts": listing(step, race.expects[step.name]),
        "playable": has_row_locks(),
        "notice": notice,
        "outcome": outcome,
    }
    return for_owner(render(request, "lab/race.html", context, status=status))
