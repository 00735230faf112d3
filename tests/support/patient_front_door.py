"""An app that lets the front door of its process wait for Redis while the machine stands still."""

from django.apps import AppConfig

from tests.support.patience import GENEROUS_S


class PatientFrontDoor(AppConfig):
    name = "tests.support"
    label = "patient_front_door"

    def ready(self) -> None:
        from seckill_site.front_door import ledger_node  # once there are apps

        ledger_node.LONGEST_S = GENEROUS_S
