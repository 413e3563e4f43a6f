"""What retransmissions may cost one peer, and all of them."""

from motet.protocol.core.units import SECOND
from motet.protocol.window.budget import EARNED, SHARED, RepairBudget

KIB = 1024


def spent(budget: RepairBudget[str], peer: str, now: int, tries: int = 10_000) -> int:
    return sum(KIB for _ in range(tries) if budget.spend(peer, KIB, now))


def test_a_peer_that_asks_again_and_again_costs_a_burst_and_then_the_rate() -> None:
    budget: RepairBudget[str] = RepairBudget(64 * KIB, burst=16 * KIB, rate=4 * KIB)
    assert spent(budget, "a", 0) == 16 * KIB
    assert spent(budget, "a", 0) == 0
    assert spent(budget, "a", SECOND) == 4 * KIB
    assert spent(budget, "a", 1000 * SECOND) == 16 * KIB


def test_new_bytes_pay_for_their_retransmission_up_to_a_window() -> None:
    budget: RepairBudget[str] = RepairBudget(64 * KIB, burst=16 * KIB, rate=1)
    assert spent(budget, "a", 0) == 16 * KIB
    budget.earn(4 * KIB)
    assert spent(budget, "a", 0) == EARNED * 4 * KIB
    budget.earn(1000 * KIB)
    assert spent(budget, "a", 0) == 64 * KIB


def test_all_names_together_cost_no_more_than_the_shared_account() -> None:
    budget: RepairBudget[str] = RepairBudget(16 * KIB, burst=16 * KIB, rate=1)
    assert sum(spent(budget, str(name), 0, 100) for name in range(100)) == SHARED * 16 * KIB


def test_half_of_everything_lost_never_finds_the_account_empty() -> None:
    budget: RepairBudget[str] = RepairBudget(256 * KIB, burst=16 * KIB, rate=1)
    for _ in range(1_000):
        budget.earn(KIB)
        assert budget.spend("a", KIB, 0)
