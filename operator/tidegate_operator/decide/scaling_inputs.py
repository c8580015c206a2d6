"""The terms as the status shows them: what each saw and wants now, also those that did not win."""

from __future__ import annotations

from tidegate_operator.decide.scaling_terms import Situation, Term, by_p99, by_queue, say


def terms_of(s: Situation, hold: int) -> tuple[Term, ...]:
    """What each term sees and wants now, for the status: also those that did not win."""
    demand, needs = s.demand, s.needs
    terms: list[Term] = []
    if needs is not None:
        terms.append(
            Term(
                name="arrivals",
                replicas=needs.wanted,
                message=f"{needs.forecast.now:.3g} requests/s; a replica carries {needs.model.rate:.3g}/s, bound by "
                f"{needs.model.bound.value}",
                inputs={
                    "arrivalsPerSecond": needs.forecast.now,
                    "surelyPerSecond": needs.forecast.surely,
                    "aheadPerSecond": needs.forecast.ahead,
                    "dispersion": needs.forecast.dispersion,
                    "perReplicaPerSecond": needs.model.rate,
                    "concurrency": needs.model.concurrency,
                    "efficiency": s.learned.efficiency,
                    "replayed": float(needs.replayed),
                    "surely": float(needs.surely),
                    "occupied": float(needs.occupied),
                    "staying": float(needs.staying),
                    "downWindowSeconds": s.policy.down.window_s,
                },
            )
        )
    queue = by_queue(s)
    terms.append(
        Term(
            name="queueDepth",
            replicas=queue.replicas if queue else hold,
            message=f"{demand.waiting + demand.held} wait, {demand.running} run; "
            f"{s.policy.queue_depth:g} may wait per replica",
            inputs={
                "waiting": float(demand.waiting_everywhere),
                "held": float(demand.held),
                "running": float(demand.running),
                "waitingPerReplica": demand.waiting_per_replica,
                "slots": float(demand.slots),
            },
        )
    )
    wished = by_p99(s)
    judged = [v for v in s.verdicts if v.samples]
    message = say(s.missed) if s.missed else "; ".join(say(v) for v in judged) or "too few requests to judge"
    worst = s.missed or max(judged, key=lambda v: v.share, default=None)
    seen = (
        {"samples": float(worst.samples), "over": float(worst.over), "surelyOver": worst.surely_over} if worst else {}
    )
    if worst and worst.p99_s is not None:
        seen["p99Seconds"] = worst.p99_s
    terms.append(Term(name="p99", replicas=wished.replicas if wished else None, message=message, inputs=seen))
    return tuple(terms)
