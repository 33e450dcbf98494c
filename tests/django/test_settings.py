"""The one `STREAMGUARD` dict."""

from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

import streamguard
from streamguard.django import DeadlineMiddleware
from streamguard.django.settings import Settings, load_settings


def test_nothing_needs_to_be_set() -> None:
    """Without the dict, and with an empty one, the defaults hold."""
    for nothing in ({}, {"STREAMGUARD": {}}):
        with override_settings(**nothing):
            from django.conf import settings

            if not nothing:
                del settings.STREAMGUARD
            assert load_settings() == Settings(heartbeat=15.0, deadline=None, deadline_header=None, deadline_max=None)


def test_each_key_is_a_field() -> None:
    """All keys at once, as numbers and header names."""
    everything = {
        "HEARTBEAT": 5,
        "DEADLINE": 10,
        "DEADLINE_HEADER": "X-Budget",
        "DEADLINE_MAX": 60.5,
        "LIMITS": {"idle": 30, "dead": None},
    }
    with override_settings(STREAMGUARD=everything):
        assert load_settings() == Settings(
            heartbeat=5.0,
            deadline=10.0,
            deadline_header="X-Budget",
            deadline_max=60.5,
            limits={"idle": 30, "dead": None},
        )


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"HEARTBEAT": 0}, "'HEARTBEAT'"),
        ({"HEARTBEAT": None}, "'HEARTBEAT'"),
        ({"HEARTBEAT": True}, "'HEARTBEAT'"),
        ({"HEARTBEAT": float("nan")}, "'HEARTBEAT'"),
        ({"HEARTBEAT": float("inf")}, "'HEARTBEAT'"),
        ({"DEADLINE": -1}, "'DEADLINE'"),
        ({"DEADLINE": "ten"}, "'DEADLINE'"),
        ({"DEADLINE_MAX": 0}, "'DEADLINE_MAX'"),
        ({"DEADLINE_HEADER": "X Budget"}, "'DEADLINE_HEADER'"),
        ({"DEADLINE_HEADER": 5}, "'DEADLINE_HEADER'"),
        ({"DEADLINE_HEADER": "X-Budget"}, "'DEADLINE_MAX'"),
        ({"LIMITS": 30}, "'LIMITS'"),
        ({"LIMITS": {"idel": 30}}, "'idel'"),
        ({"LIMITS": {"idle": "thirty"}}, "idle"),
        ({"LIMITS": {"idle": 30, "total": 10}}, "'LIMITS'"),
        ({"heartbeat": 5}, "'heartbeat'"),
        ({5: 5}, "'5'"),
        ([], "STREAMGUARD"),
    ],
)
def test_what_cannot_be_right_is_named(wrong: Any, named: str) -> None:
    """The error names the key, when the project starts: the app and the middleware both look."""
    with override_settings(STREAMGUARD=wrong):
        for start in (apps.get_app_config("streamguard").ready, lambda: DeadlineMiddleware(lambda request: None)):
            with pytest.raises(ImproperlyConfigured, match=named):
                start()


def test_limits_need_the_app() -> None:
    """Limits that nothing would apply are refused."""
    with (
        override_settings(STREAMGUARD={"LIMITS": {"idle": 30}}, INSTALLED_APPS=[]),
        pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"),
    ):
        load_settings()


def test_limits_are_this_process_s_defaults() -> None:
    """When the project starts, its limits become those of every stream."""
    try:
        with override_settings(STREAMGUARD={"LIMITS": {"idle": 33}}):
            apps.get_app_config("streamguard").ready()
        assert streamguard.Timeouts().idle == 33
    finally:
        streamguard.configure(idle=streamguard.NOT_GIVEN)
    assert streamguard.Timeouts().idle == 120
