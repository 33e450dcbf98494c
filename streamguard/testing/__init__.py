"""A scripted server on loopback, and a leak check, as the tests of streamguard use them.

`streamguard.testing.script` has the table of the steps of a script.
"""

from .agent_api import AgentAPI
from .gateway import Gateway
from .leaks import LeakCheck, no_leaks
from .request_log import Left, Request
from .script import Step, parse_script

__all__ = ["AgentAPI", "Gateway", "LeakCheck", "Left", "Request", "Step", "no_leaks", "parse_script"]
