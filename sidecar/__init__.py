"""health-arbiter: a sidecar that decides, with its whole fleet, when a container is restarted.

The way of one error, from ``POST /errors`` to the 503; ``tests/test_walk.py`` follows it through these functions:

1. ``inputs.report_api.routes`` has the handler of the path, and ``inputs.report_bodies.read_errors`` reads the body.
2. ``controller.inbox.Inbox.offer`` keeps the report until the controller takes it. If it is full, the app gets a 503.
3. ``controller.container_controller.Controller.advance``, the only writer of the state, takes everything that waits.
4. ``core.measure.measurements.Measurements.take`` counts the error in the window.
5. ``core.life.detectors.judge`` compares the window with the limits and with the fleet: a verdict.
6. ``core.life.transitions.step`` makes the container suspect; ``controller.membership.Membership.beat`` announces it.
7. ``core.life.culling.pursue`` wants a token after the settle, and ``controller.effects.EffectRunner.carry_out`` asks.
8. ``store.budget.FleetBudget.claim`` reads the fleet's state, and ``core.fleet.decide.decide`` answers: with a refusal
   if one of the gates in ``core.fleet.gates.refuse_claim`` refuses.
9. ``core.life.culling.answered`` takes the reply from the inbox: with a token the container drains.
10. ``server.public.PublicServer.answer`` answers the next poll from the snapshot, in which the container is out of
    balance: 503, and ``server.health.Health.body_of_down`` says why.
"""

__version__ = "0.3.0"
