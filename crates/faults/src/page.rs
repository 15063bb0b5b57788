//! The words of `docs/reliability.md` around its tables.

pub(crate) const TITLE: &str = "\
# Reliability

<!-- Written by `./scripts/faults report` from crates/faults/results. Do not edit: run the suite again. -->

";

pub(crate) const PROMISES: &str = "\
What Tidegate does when something breaks: one fault at a time, real processes, more demand than the limits allow. Each figure was measured and is compared
with what is promised; one beyond its bound fails its row and the suite.

## What is promised

| promise | bound |
| --- | --- |
| the limit | without a fault nothing is admitted beyond it, and under demand all of it is admitted (`leased`: at least 98 %) |
| `on_store_failure: deny` | never beyond the limit, whatever happens to the network or to the processes |
| `on_store_failure: local` | while Redis is unavailable, at most one more limit in a window, all servers together |
| `on_store_failure: allow` | no limit while Redis is unavailable, by choice; the answers that Redis gives stay within it |
| lost data | a Redis that loses what it has acknowledged (restart without persistence, failover, `FLUSHALL`, eviction, a clock set forward) grants each key at most its limit once more, each time |
| latency | 99.9 % of the answers within `redis_deadline` (15 ms) and 2 ms |
| recovery | within a second after Redis answers again; with Sentinel and Cluster, after the failover has ended |
| a rolling restart | no failed request with `drain_delay: 1s` and a balancer that follows `/readyz` |
| the process | stays up |

[One node to many](guides/many-nodes.md#what-is-promised-and-its-bounds) has the reasons, [At three in the morning](guides/at-three-in-the-morning.md) what to do.

";

pub(crate) const COLUMNS: &str = "\
## How it is measured

Three `tidegate serve` processes share a Redis on one machine. Twelve rules, one counted key each: `exact` and `leased`, each with `allow`, `deny` and `local`, each as a fixed window of
100 per 2 s and as a token bucket of 50 per second with a burst of 50. Each rule gets three times what it grants, spread over the servers, before, during and after the fault.

| column | meaning |
| --- | --- |
| window, bucket | the most that was admitted beyond the limit, for `allow` / `deny` / `local`; after *of* the bound, where it is not 0. A window is counted by the `reset_time` of its answers; a bucket by the largest excess over burst + rate × time in any interval. With `allow`, answers that were given without Redis are left out |
| degraded | the share of the answers that were given without Redis while the fault lasted, exact / leased |
| p99.9, slowest | how long answers took over the whole run, as the clients saw it, without the time in which the clients themselves did not run |
| over 50 ms | decisions that took longer, by the servers' own histograms (`tidegate_decision_seconds`) |
| recovery | from the end of the fault until for half a second at most 1 % of the answers were degraded or failed |
| the last | `ok` if all figures are within their bounds, no server ended or panicked, and no request failed. Clients of a server that is itself killed or stopped are left out of failures and latency |

";

pub(crate) const REDIS_NOTES: &str = "\
## Faults of Redis

What you see: `tidegate_degraded_total` rises, `tidegate_redis_up` is 0 on the servers that are affected, `/readyz` says why. Nothing needs to be done to Tidegate: fix Redis, and the servers return to it
by themselves. To change what clients get meanwhile, change `on_store_failure` of the rule.

";

pub(crate) const SERVER_NOTES: &str = "\
## Faults of Tidegate

Its processes, files and clocks. The same load and columns.

";

pub(crate) const RESERVATION_NOTES: &str = "\
## Faults while reservations are open

16 callers of two servers reserve random estimates of one budget, which a rule for the user and one for the team count, for 2 s each, and settle or cancel them at either server, by calls that they repeat until
they are answered. *Held and used* is the most that open estimates and settled costs, each up to its estimate, came to by the answers that the callers got. A Redis that forgets grants the budget once more.
What is lost, such as a reservation without an answer, is back when it ends (`unsettled: give_back`).

";

pub(crate) const RESOURCE_NOTES: &str = "\
## Bounded resources

One server that counts in memory, and more clients than it has room for.

";
