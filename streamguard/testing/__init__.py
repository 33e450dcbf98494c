"""A scripted server on loopback, and a leak check: what streamguard's own tests stand on, for yours.

`streamguard.testing.script` has the table of what a script can say.
"""

from .agent_api import AgentAPI
from .gateway import Gateway
from .leaks import LeakCheck, no_leaks
from .request_log import Left, Request
from .script import Step, parse_script

__all__ = ["AgentAPI", "Gateway", "LeakCheck", "Left", "Request", "Step", "no_leaks", "parse_script"]
