---------------------------- MODULE BucketLease ----------------------------
(* Leases of a token bucket (`sync: leased`): instances charge units in      *)
(* advance in Redis, and admit requests from them without asking.            *)
(*                                                                           *)
(* The promise: what all instances admit together is what one bucket with    *)
(* the same burst and rate would admit. `reference` is that bucket: a ghost  *)
(* that every admission is charged to, at the time of the admission.         *)
(*                                                                           *)
(* One unit leaks per tick. What is modelled, and what is not: README.md.    *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Instances,  \* the instances that share the bucket
  Burst,      \* the capacity of the bucket
  Lasts,      \* ticks that a lease lasts
  MaxTime,    \* ticks that are explored
  MaxIds,     \* leases that are explored
  MaxCrashes, \* crashes that are explored
  Bug         \* the bug that is planted, or "none"

ASSUME Burst \in Nat /\ Lasts \in Nat \ {0}

VARIABLES
  now,        \* the time of Redis; instances count the same ticks
  debt,       \* the bucket in Redis
  leases,     \* in Redis: [id, units, ends]
  messages,   \* on their way to Redis: lease requests and returns
  replies,    \* on their way to an instance
  nextId,     \* the id of the next lease
  crashes,    \* crashes so far
  pool,       \* of each instance: [id, granted, left, ends]; id 0 if empty
  asked,      \* of each instance: the id of the request it waits for, or 0
  reference   \* the ghost: the bucket that every admission is charged to

vars == <<now, debt, leases, messages, replies, nextId, crashes, pool, asked, reference>>

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Minus(a, b) == IF a > b THEN a - b ELSE 0

RECURSIVE Sum(_)
Sum(set) == IF set = {} THEN 0
            ELSE LET one == CHOOSE lease \in set : TRUE
                 IN one.units + Sum(set \ {one})

EmptyPool == [id |-> 0, granted |-> 0, left |-> 0, ends |-> 0]

Init ==
  /\ now = 0 /\ debt = 0 /\ leases = {} /\ messages = {} /\ replies = {}
  /\ nextId = 1 /\ crashes = 0 /\ reference = 0
  /\ pool = [i \in Instances |-> EmptyPool]
  /\ asked = [i \in Instances |-> 0]

----------------------------------------------------------------------------
(* Time                                                                      *)

(* Debt leaks, but not below what is out on lease: `repaid` in               *)
(* lua/bucket_leases.lua. At the very end of a lease its units still count.  *)
Tick ==
  /\ now < MaxTime
  /\ now' = now + 1
  /\ LET leaked == Minus(debt, 1)
         out == Sum({lease \in leases : lease.ends >= now + 1})
     IN debt' = IF Bug = "no-floor" THEN leaked ELSE Max(leaked, out)
  /\ leases' = {lease \in leases : lease.ends > now + 1}
  /\ reference' = Minus(reference, 1)
  /\ UNCHANGED <<messages, replies, nextId, crashes, pool, asked>>

----------------------------------------------------------------------------
(* An instance                                                               *)

IsUsable(i) == /\ pool[i].id # 0
               /\ pool[i].left > 0
               /\ (now < pool[i].ends \/ Bug = "use-after-end")

(* `take` in leases/pool.rs.                                                 *)
Admit(i) ==
  /\ IsUsable(i)
  /\ pool' = [pool EXCEPT ![i].left = @ - 1]
  /\ reference' = reference + 1
  /\ UNCHANGED <<now, debt, leases, messages, replies, nextId, crashes, asked>>

(* `ask`: reports what was used of the running lease, and asks for more.     *)
Ask(i) ==
  /\ asked[i] = 0 /\ nextId <= MaxIds
  /\ LET isHeld == pool[i].id # 0 /\ now < pool[i].ends
         left == IF isHeld THEN pool[i].left ELSE 0
     IN \E more \in {1, Burst} :
          messages' = messages \cup
            {[kind |-> "lease", from |-> i, id |-> nextId, sent |-> now,
              previous |-> IF isHeld THEN pool[i].id ELSE 0,
              used |-> IF isHeld THEN pool[i].granted - pool[i].left ELSE 0,
              left |-> left, units |-> Min(more + left, Burst)]}
  /\ asked' = [asked EXCEPT ![i] = nextId]
  /\ nextId' = nextId + 1
  /\ UNCHANGED <<now, debt, leases, replies, crashes, pool, reference>>

(* The deadline passes. The request may still arrive.                        *)
GiveUp(i) ==
  /\ asked[i] # 0
  /\ asked' = [asked EXCEPT ![i] = 0]
  /\ UNCHANGED <<now, debt, leases, messages, replies, nextId, crashes, pool, reference>>

(* `fill`. The lease ends as long after the request was SENT as Redis says   *)
(* that it lasts, so no shared clock is needed.                              *)
Receive(i) ==
  \E reply \in replies :
    /\ reply.to = i
    /\ replies' = replies \ {reply}
    /\ IF asked[i] # reply.id
       THEN UNCHANGED <<pool, asked>>
       ELSE
         /\ asked' = [asked EXCEPT ![i] = 0]
         /\ IF reply.units = 0
            THEN UNCHANGED pool
            ELSE
              LET carried == Min(reply.left, reply.units)
                  taken == Minus(reply.units, reply.left)
                  left == IF Bug = "carry-used"
                          THEN carried
                          ELSE IF pool[i].id = 0 THEN 0 ELSE Min(pool[i].left, carried)
                  from == IF Bug = "end-from-receipt" THEN now ELSE reply.sent
              IN pool' = [pool EXCEPT ![i] =
                   [id |-> reply.id, granted |-> taken + carried, left |-> left + taken,
                    ends |-> from + Minus(reply.ends, reply.time)]]
    /\ UNCHANGED <<now, debt, leases, messages, nextId, crashes, reference>>

(* `empty`: idle units go back.                                              *)
Return(i) ==
  /\ pool[i].id # 0 /\ pool[i].left > 0 /\ now < pool[i].ends
  /\ messages' = messages \cup
       {[kind |-> "return", from |-> i, id |-> pool[i].id, sent |-> now,
         previous |-> 0, used |-> 0, left |-> 0, units |-> pool[i].left]}
  /\ pool' = IF Bug = "serve-returned" THEN pool ELSE [pool EXCEPT ![i] = EmptyPool]
  /\ UNCHANGED <<now, debt, leases, replies, nextId, crashes, asked, reference>>

(* The units of the pool are lost until their lease ends.                    *)
Crash(i) ==
  /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1
  /\ pool' = [pool EXCEPT ![i] =
       IF Bug = "restart-refilled" THEN [pool[i] EXCEPT !.left = pool[i].granted] ELSE EmptyPool]
  /\ asked' = [asked EXCEPT ![i] = 0]
  /\ UNCHANGED <<now, debt, leases, messages, replies, nextId, reference>>

----------------------------------------------------------------------------
(* Redis                                                                     *)

(* `lease` in lua/bucket_leases.lua. A lease that is no longer there carries *)
(* nothing.                                                                  *)
Grant ==
  \E message \in messages :
    /\ message.kind = "lease"
    /\ messages' = messages \ {message}
    /\ LET previous == {lease \in leases : lease.id = message.previous}
           ends == IF previous = {} THEN 0 ELSE (CHOOSE lease \in previous : TRUE).ends
           carried == Minus(Sum(previous), message.used)
           without == debt - carried
           units == Max(carried, Min(message.units, Minus(Burst, without)))
           isGranted == units > carried
           lasts == IF isGranted THEN now + Lasts ELSE ends
           kept == leases \ previous
       IN /\ debt' = without + units
          /\ leases' = IF units = 0 THEN kept
                       ELSE kept \cup {[id |-> message.id, units |-> units, ends |-> lasts]}
          /\ replies' = replies \cup
               {[to |-> message.from, id |-> message.id, units |-> units, ends |-> lasts,
                 time |-> now, left |-> message.left, sent |-> message.sent]}
    /\ UNCHANGED <<now, nextId, crashes, pool, asked, reference>>

(* `return_lease`: nothing happens after the end of the lease.               *)
TakeBack ==
  \E message \in messages :
    /\ message.kind = "return"
    /\ messages' = messages \ {message}
    /\ LET found == {lease \in leases : lease.id = message.id}
           back == IF Bug = "return-unchecked" THEN message.units
                   ELSE Min(message.units, Sum(found))
       IN /\ debt' = Minus(debt, back)
          /\ leases' = leases \ found
    /\ UNCHANGED <<now, replies, nextId, crashes, pool, asked, reference>>

(* Another request is decided in Redis itself.                               *)
Exact ==
  /\ debt < Burst
  /\ debt' = debt + 1
  /\ reference' = reference + 1
  /\ UNCHANGED <<now, leases, messages, replies, nextId, crashes, pool, asked>>

----------------------------------------------------------------------------
(* The network: messages arrive in any order and after any time. One that    *)
(* never arrives is lost, so loss needs no step of its own.                  *)

Next ==
  \/ Tick \/ Grant \/ TakeBack \/ Exact
  \/ \E i \in Instances : Admit(i) \/ Ask(i) \/ GiveUp(i) \/ Receive(i) \/ Return(i) \/ Crash(i)

\* Instances are alike: TLC explores one of each set of states that differ only in their names.
Alike == Permutations(Instances)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* The promise.                                                              *)
NeverOverTheLimit == reference <= Burst

(* What makes it true: Redis owes at least what is out, and never more than  *)
(* the burst.                                                                *)
DebtCoversLeases == Sum(leases) <= debt /\ debt <= Burst

=============================================================================
