"""The shop's settings for processes whose mails and refunds a test counts."""

from tests.support.patient_settings import *  # noqa: F403

EMAIL_BACKEND = "tests.support.noted.Mails"
SECKILL_PAYMENT_PROVIDERS = ["orders.payments.sandbox.Sandbox", "tests.support.noted.Provider"]
