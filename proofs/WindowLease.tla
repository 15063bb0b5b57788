---------------------------- MODULE WindowLease ----------------------------
(* Leases of a limit whose units belong to a window (`fixed_window`; the     *)
(* slots of `sliding_window_slots` are such windows too).                    *)
(*                                                                           *)
(* The promise: in every window, by the clock of Redis, all instances admit  *)
(* together at most the limit. What is modelled, and what not: README.md.    *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Instances,  \* the instances that share the limit
  Limit,      \* requests per window
  Window,     \* ticks of a window
  MaxTime,    \* ticks that are explored
  MaxIds,     \* lease requests that are explored
  MaxCrashes, \* crashes that are explored
  Bug         \* the bug that is planted, or "none"

VARIABLES
  now,        \* the time of Redis; instances count the same ticks
  used,       \* in Redis: what the current window was charged
  messages,   \* on their way to Redis
  replies,    \* on their way to an instance
  nextId,     \* the id of the next request
  crashes,    \* crashes so far
  pool,       \* of each instance: [left, window, ends]
  asked,      \* of each instance: the id of the request it waits for, or 0
  admitted    \* the ghost: what all instances admitted in the current window

vars == <<now, used, messages, replies, nextId, crashes, pool, asked, admitted>>

Min(a, b) == IF a < b THEN a ELSE b
Minus(a, b) == IF a > b THEN a - b ELSE 0
EmptyPool == [left |-> 0, window |-> 0, ends |-> 0]
WindowOf(time) == time \div Window
EndOf(window) == (window + 1) * Window

Init ==
  /\ now = 0 /\ used = 0 /\ messages = {} /\ replies = {}
  /\ nextId = 1 /\ crashes = 0 /\ admitted = 0
  /\ pool = [i \in Instances |-> EmptyPool]
  /\ asked = [i \in Instances |-> 0]

Tick ==
  /\ now < MaxTime
  /\ now' = now + 1
  /\ LET isNew == WindowOf(now + 1) # WindowOf(now)
     IN /\ used' = IF isNew THEN 0 ELSE used
        /\ admitted' = IF isNew THEN 0 ELSE admitted
  /\ UNCHANGED <<messages, replies, nextId, crashes, pool, asked>>

Admit(i) ==
  /\ pool[i].left > 0 /\ (now < pool[i].ends \/ Bug = "use-after-end")
  /\ pool' = [pool EXCEPT ![i].left = @ - 1]
  /\ admitted' = admitted + 1
  /\ UNCHANGED <<now, used, messages, replies, nextId, crashes, asked>>

Ask(i) ==
  /\ asked[i] = 0 /\ nextId <= MaxIds
  /\ \E units \in {1, Limit} :
       messages' = messages \cup
         {[kind |-> "lease", from |-> i, id |-> nextId, sent |-> now, units |-> units, window |-> 0]}
  /\ asked' = [asked EXCEPT ![i] = nextId]
  /\ nextId' = nextId + 1
  /\ UNCHANGED <<now, used, replies, crashes, pool, admitted>>

GiveUp(i) ==
  /\ asked[i] # 0
  /\ asked' = [asked EXCEPT ![i] = 0]
  /\ UNCHANGED <<now, used, messages, replies, nextId, crashes, pool, admitted>>

(* Units of the same window are added up; those of an earlier one are gone.  *)
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
              LET isSame == pool[i].window = reply.window \/ Bug = "carry-into-next"
                  left == IF isSame THEN pool[i].left ELSE 0
                  from == IF Bug = "end-from-receipt" THEN now ELSE reply.sent
              IN pool' = [pool EXCEPT ![i] =
                   [left |-> left + reply.units, window |-> reply.window,
                    ends |-> from + Minus(EndOf(reply.window), reply.time)]]
    /\ UNCHANGED <<now, used, messages, nextId, crashes, admitted>>

Return(i) ==
  /\ pool[i].left > 0 /\ now < pool[i].ends
  /\ messages' = messages \cup
       {[kind |-> "return", from |-> i, id |-> 0, sent |-> now, units |-> pool[i].left,
         window |-> pool[i].window]}
  /\ pool' = IF Bug = "serve-returned" THEN pool ELSE [pool EXCEPT ![i] = EmptyPool]
  /\ UNCHANGED <<now, used, replies, nextId, crashes, asked, admitted>>

Crash(i) ==
  /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1
  /\ pool' = [pool EXCEPT ![i] = EmptyPool]
  /\ asked' = [asked EXCEPT ![i] = 0]
  /\ UNCHANGED <<now, used, messages, replies, nextId, admitted>>

Grant ==
  \E message \in messages :
    /\ message.kind = "lease"
    /\ messages' = messages \ {message}
    /\ LET units == Min(message.units, Minus(Limit, used))
       IN /\ used' = used + units
          /\ replies' = replies \cup
               {[to |-> message.from, id |-> message.id, units |-> units, time |-> now,
                 window |-> WindowOf(now), sent |-> message.sent]}
    /\ UNCHANGED <<now, nextId, crashes, pool, asked, admitted>>

(* A return names the window that was charged, and is void after it.         *)
TakeBack ==
  \E message \in messages :
    /\ message.kind = "return"
    /\ messages' = messages \ {message}
    /\ used' = IF message.window = WindowOf(now) \/ Bug = "return-into-next"
               THEN Minus(used, message.units) ELSE used
    /\ UNCHANGED <<now, replies, nextId, crashes, pool, asked, admitted>>

Exact ==
  /\ used < Limit
  /\ used' = used + 1
  /\ admitted' = admitted + 1
  /\ UNCHANGED <<now, messages, replies, nextId, crashes, pool, asked>>

(* The network: messages arrive in any order and after any time. One that    *)
(* never arrives is lost.                                                    *)
Next ==
  \/ Tick \/ Grant \/ TakeBack \/ Exact
  \/ \E i \in Instances : Admit(i) \/ Ask(i) \/ GiveUp(i) \/ Receive(i) \/ Return(i) \/ Crash(i)

Alike == Permutations(Instances)

Spec == Init /\ [][Next]_vars

NeverOverTheLimit == admitted <= Limit

=============================================================================
