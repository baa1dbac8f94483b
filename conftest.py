"""For every test of the workspace: no time limit for a property's example, because a busy machine is no bug."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("distcore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("distcore")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # What a shell starts in the background ignores ctrl-C, and so does whatever that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
