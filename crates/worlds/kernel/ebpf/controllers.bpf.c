// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//
// Linux's side of the controllers: struct_ops programs that fill a step (bpf_abi.rs) from the socket, have the
// controller take it, and put the window into the socket.
//
// Siblings. What a subflow publishes lies in `connections`, keyed by the address of the MPTCP socket: one
// place a subflow, written by that subflow alone (under the lock of its own socket) and read by the others
// without a lock. So a sibling may be seen a moment old, never with another's numbers. Walking the MPTCP
// socket's own list instead would read it without its lock, and would not see a sibling's statistics.
//
// Only what has these names in the running kernel is used (CO-RE): no header of a kernel is needed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

// Made from bpf_abi.rs by build.rs: SLOTS, STATE_WORDS, SSTHRESH_INFINITE, OP_*, RULE_*, GROUP_APART,
// CONTROLLERS, ASSERT_LAYOUTS.
#include "bpf_abi.h"

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define CORE __attribute__((preserve_access_index))

// uapi/linux/bpf.h
enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_SK_STORAGE = 24 };
enum { F_NO_PREALLOC = 1, STORAGE_CREATE = 1, NOEXIST = 1 };
enum { PIN_BY_NAME = 1 };
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static void *(*storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;
extern void *bpf_rdonly_cast(const void *object, u32 type) __attribute__((section(".ksyms"), weak));

// ---- the kernel's, as far as needed

enum { AF_INET = 2, AF_INET6 = 10, TCP_CONG_NON_RESTRICTED = 1 };
enum { SK_PACING_NONE = 0, SK_PACING_NEEDED = 1 };

struct net {
	u64 net_cookie;
} CORE;
typedef struct {
	struct net *net;
} possible_net_t;
struct in6_addr {
	u32 words[4];
};
typedef struct {
	long counter;
} atomic64_t;
struct sock_common {
	u32 skc_rcv_saddr;
	u16 skc_family;
	int skc_bound_dev_if;
	possible_net_t skc_net;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
} CORE;
struct sock {
	struct sock_common __sk_common;
	int sk_rx_dst_ifindex;
	u32 sk_pacing_status;
} CORE;
struct inet_sock {
	struct sock sk;
} CORE;
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	void *icsk_ulp_data;
} CORE;
struct minmax_sample {
	u32 t, v;
};
struct minmax {
	struct minmax_sample s[3];
};
struct tcp_rack {
	u32 rtt_us;
} CORE;
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd, snd_ssthresh, snd_cwnd_clamp, prior_cwnd;
	u32 snd_una, snd_nxt, delivered, max_packets_out, srtt_us;
	u64 tcp_mstamp;
	struct minmax rtt_min;
	struct tcp_rack rack;
	u8 is_cwnd_limited : 1;
	_Bool is_mptcp;
} CORE;
struct mptcp_subflow_context {
	struct sock *conn;
	u32 token;
} CORE;
struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	u32 flags;
} CORE;

// ---- ours: bpf_abi.rs has the same layouts

enum { NO_SLOT = SLOTS };

struct SubflowStats {
	u64 cwnd, srtt;
	u8 slow_start;
	u64 loss_interval, phase_at, packets_between_losses, peak;
};
struct AnbStep {
	u64 state[STATE_WORDS];
	u64 now_ns, srtt_ns, rtt_ns, min_rtt_ns;
	u32 acked, round, cwnd_limited, recovering, cause, cwnd, ssthresh, n, me, slow_start;
	struct SubflowStats members[SLOTS];
	struct SubflowStats mine;
};

// A subflow of a connection: whose it is (the address of its socket; 0: nobody's), when it last published.
struct AnbSlot {
	u64 owner, cookie, at_ns;
	u32 group, token;
	struct SubflowStats stats;
};
struct anb_connection {
	struct AnbSlot slots[SLOTS];
};
struct anb_socket {
	struct AnbStep step;
	u64 connection;
	// Zero, or the number by which its namespace takes all connections for one, plus one.
	u32 all;
	u32 slot, group, token, round_end, last_cwnd, delivered, cwnd_max;
};
// A rule of `kernel group`: of an address, an interface or a connection, in a network namespace.
struct AnbRule {
	u64 netns;
	u32 kind, selector[4];
	u32 unused;
};
ASSERT_LAYOUTS

struct {
	__uint(type, MAP_HASH);
	__uint(map_flags, F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct anb_connection);
} connections SEC(".maps");

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 1024);
	__uint(pinning, PIN_BY_NAME);
	__type(key, struct AnbRule);
	__type(value, u32);
} groups SEC(".maps");

struct {
	__uint(type, MAP_SK_STORAGE);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct anb_socket);
} sockets SEC(".maps");

// What a new connection starts with: nobody. A stack is too small for it.
struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct anb_connection);
} nobody SEC(".maps");

struct parity {
	struct AnbStep step;
	u32 op, cwnd;
};
struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct parity);
} parity SEC(".maps");

// What a loss leaves at least: Linux's own least ssthresh.
#define CWND_MIN 2

#define CORE_INFO(field, kind) __builtin_preserve_field_info(field, kind)

INLINE u32 is_cwnd_limited(const struct tcp_sock *tp)
{
	const u8 *at = (const u8 *)tp + CORE_INFO(tp->is_cwnd_limited, 0 /* byte offset */);
	u64 bits;

	switch (CORE_INFO(tp->is_cwnd_limited, 1 /* byte size */)) {
	case 1:
		bits = *at;
		break;
	case 2:
		bits = *(const u16 *)at;
		break;
	default:
		bits = *(const u32 *)at;
	}
	bits <<= CORE_INFO(tp->is_cwnd_limited, 4 /* left shift */);
	if (bits >> CORE_INFO(tp->is_cwnd_limited, 5 /* right shift */))
		return 1;
	// tcp_is_cwnd_limited(): in slow start the window may grow to twice what was used of it.
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

INLINE u32 *lookup_rule(u64 netns, u32 kind, u32 a, u32 b, u32 c, u32 d)
{
	struct AnbRule key = { .netns = netns, .kind = kind, .selector = { a, b, c, d } };

	return map_lookup(&groups, &key);
}

// Which group this subflow is in: as set for the connection, its address or its interface; else the one group.
INLINE u32 group_of(struct sock *sk, const struct anb_socket *s)
{
	const struct sock_common *common = &sk->__sk_common;
	u64 netns = common->skc_net.net->net_cookie;
	int device = common->skc_bound_dev_if;
	u32 *found;

	found = lookup_rule(netns, RULE_CONNECTION, s->token, 0, 0, 0);
	if (found)
		return *found == GROUP_APART ? 0x80000000 | s->slot : *found;
	if (common->skc_family == AF_INET6)
		found = lookup_rule(netns, RULE_ADDRESS, common->skc_v6_rcv_saddr.words[0],
			     common->skc_v6_rcv_saddr.words[1], common->skc_v6_rcv_saddr.words[2],
			     common->skc_v6_rcv_saddr.words[3]);
	else
		found = lookup_rule(netns, RULE_ADDRESS, common->skc_rcv_saddr, 0, 0, 0);
	if (!found) {
		if (!device)
			device = sk->sk_rx_dst_ifindex;
		found = lookup_rule(netns, RULE_INTERFACE, device, 0, 0, 0);
	}
	return found ? *found : 0;
}

// Finds this subflow's connection, and a place in it.
INLINE void join(struct sock *sk, struct anb_socket *s)
{
	const struct tcp_sock *tp = (void *)sk;
	const struct mptcp_subflow_context *subflow;
	struct anb_connection *connection;
	u32 zero = 0;
	u64 key;

	s->slot = NO_SLOT;
	s->connection = 0;
	if (s->all) {
		// No socket has such an address.
		key = s->all;
	} else {
		if (!tp->is_mptcp || !bpf_rdonly_cast)
			return;
		subflow = bpf_rdonly_cast(tp->inet_conn.icsk_ulp_data,
					  __builtin_btf_type_id(*(struct mptcp_subflow_context *)0, 1));
		key = (u64)subflow->conn;
		if (!key)
			return;
		s->token = subflow->token;
	}
	connection = map_lookup(&connections, &key);
	if (!connection) {
		struct anb_connection *empty = map_lookup(&nobody, &zero);

		if (!empty)
			return;
		map_update(&connections, &key, empty, NOEXIST);
		connection = map_lookup(&connections, &key);
		if (!connection)
			return;
	}
	s->connection = key;
	for (u32 i = 0; i < SLOTS; i++) {
		struct AnbSlot *slot = &connection->slots[i];

		if (slot->owner)
			continue;
		if (__sync_val_compare_and_swap(&slot->owner, 0, (u64)sk))
			continue;
		s->slot = i;
		slot->token = s->token;
		break;
	}
}

// Leaves its connection; the last one takes it along.
INLINE void leave(struct sock *sk, struct anb_socket *s)
{
	struct anb_connection *connection = map_lookup(&connections, &s->connection);
	u32 others = 0;

	if (!connection)
		return;
	for (u32 i = 0; i < SLOTS; i++) {
		struct AnbSlot *slot = &connection->slots[i];

		if (slot->owner == (u64)sk) {
			slot->stats.srtt = 0;
			slot->at_ns = 0;
			__sync_val_compare_and_swap(&slot->owner, (u64)sk, 0);
		} else if (slot->owner) {
			others = 1;
		}
	}
	if (!others)
		map_delete(&connections, &s->connection);
	s->connection = 0;
}

// Who has heard nothing for so long no longer counts: a dead path must not slow the others.
#define UNRESPONSIVE_RTTS 8
#define UNRESPONSIVE_NS 2000000000ull

// Copies what the group has published into the step, and says whose place is this subflow's.
INLINE struct anb_connection *read_siblings(struct sock *sk, struct anb_socket *s)
{
	struct AnbStep *step = &s->step;
	struct anb_connection *connection;
	u32 n = 0;

	step->n = 0;
	if (!s->connection)
		return 0;
	connection = map_lookup(&connections, &s->connection);
	if (!connection) {
		// It was taken along by one that left as this one came.
		s->connection = 0;
		return 0;
	}
	for (u32 i = 0; i < SLOTS; i++) {
		const struct AnbSlot *slot = &connection->slots[i];
		u64 unresponsive = UNRESPONSIVE_NS + UNRESPONSIVE_RTTS * slot->stats.srtt;
		u32 counts = i == s->slot ||
			     (slot->owner && slot->group == s->group && step->now_ns - slot->at_ns < unresponsive);

		if (counts) {
			step->members[i] = slot->stats;
			n++;
		} else {
			__builtin_memset(&step->members[i], 0, sizeof(struct SubflowStats));
		}
	}
	// Without a place of its own (more subflows than places) it stands in for the first.
	step->me = s->slot < SLOTS ? s->slot : 0;
	step->n = n;
	return connection;
}

INLINE void publish(struct sock *sk, struct anb_socket *s, struct anb_connection *connection)
{
	struct AnbSlot *slot;
	u32 i = s->slot;

	if (!connection || i >= SLOTS)
		return;
	slot = &connection->slots[i];
	if (slot->owner != (u64)sk)
		return;
	slot->stats = s->step.mine;
	slot->group = s->group;
	slot->cookie = sk->__sk_common.skc_cookie.counter;
	slot->at_ns = s->step.now_ns;
}

// What every step needs to know. The clock is that of TCP, in microseconds.
INLINE void read_socket(struct sock *sk, struct anb_socket *s)
{
	const struct tcp_sock *tp = (void *)sk;
	struct AnbStep *step = &s->step;

	step->now_ns = tp->tcp_mstamp * 1000;
	step->srtt_ns = (u64)tp->srtt_us * 1000 >> 3;
	step->rtt_ns = (u64)tp->rack.rtt_us * 1000;
	step->min_rtt_ns = tp->rtt_min.s[0].v == ~0u ? 0 : (u64)tp->rtt_min.s[0].v * 1000;
	if ((s32)(tp->snd_una - s->round_end) >= 0) {
		step->round++;
		s->round_end = tp->snd_nxt;
		if (!s->connection && (tp->is_mptcp || s->all))
			join(sk, s);
		if (s->connection)
			s->group = group_of(sk, s);
	}
}

// Whether the kernel goes on with a window or an ssthresh that it cannot have from us or from itself. A kernel whose
// __bpf_prog_enter() may skip a program takes for its answer what lies on the stack: zero, or a part of a pointer
// (docs/measurements/kernel.md, "What Linux does with a controller's answer"). At the end of recovery that becomes
// the window; we see the acknowledgement that ends it before anything is sent, and put it right there.
INLINE u32 is_unanswered(const struct tcp_sock *tp, const struct anb_socket *s)
{
	u32 ssthresh = tp->snd_ssthresh;

	return ssthresh < CWND_MIN || (ssthresh > s->cwnd_max && ssthresh != SSTHRESH_INFINITE) ||
	       tp->snd_cwnd > s->cwnd_max || !tp->snd_cwnd;
}

// What the kernel has set itself. For an event of which the controller was not told, half of what it had.
INLINE void adopt_kernel_cwnd(struct tcp_sock *tp, struct anb_socket *s)
{
	if (is_unanswered(tp, s)) {
		u32 half = s->last_cwnd > 2 * CWND_MIN ? s->last_cwnd / 2 : CWND_MIN;

		tp->snd_cwnd = half;
		tp->snd_ssthresh = half;
	}
	s->step.cwnd = tp->snd_cwnd;
	s->step.ssthresh = tp->snd_ssthresh;
}

// Whether the kernel has set the window itself since we did, or takes for ended what we take for slow start.
INLINE u32 is_cwnd_changed(const struct tcp_sock *tp, const struct anb_socket *s)
{
	return tp->snd_cwnd != s->last_cwnd || (s->step.slow_start && tp->snd_cwnd >= tp->snd_ssthresh) ||
	       is_unanswered(tp, s);
}

// What every step begins with: what the controller needs to know, its siblings, and what the kernel has done since.
INLINE struct anb_connection *begin_step(struct sock *sk, struct anb_socket *s,
					 u32 (*set)(struct AnbStep *step))
{
	struct anb_connection *connection;
	struct tcp_sock *tp = (void *)sk;

	read_socket(sk, s);
	connection = read_siblings(sk, s);
	if (is_cwnd_changed(tp, s)) {
		adopt_kernel_cwnd(tp, s);
		set(&s->step);
	}
	return connection;
}

INLINE void set_cwnd(struct tcp_sock *tp, struct anb_socket *s, u32 cwnd)
{
	u32 clamp = tp->snd_cwnd_clamp;

	if (cwnd > clamp)
		cwnd = clamp;
	if (!cwnd)
		cwnd = 1;
	tp->snd_cwnd = cwnd;
	s->last_cwnd = cwnd;
	if (cwnd > s->cwnd_max)
		s->cwnd_max = cwnd;
	// The kernel takes a window below ssthresh for slow start.
	if (!s->step.slow_start && tp->snd_ssthresh > cwnd)
		tp->snd_ssthresh = cwnd > CWND_MIN ? cwnd : CWND_MIN;
}

// Behind a drop-tail queue the subflows of a connection lose more often than single flows do, which depends on the
// time of their packets to a part of a millisecond. Paced, at the rate that TCP has for it, they take 47 instead of
// 34 % beside one flow (docs/measurements/kernel.md).
INLINE void pace(struct sock *sk, const struct anb_socket *s)
{
	if (s->step.n > 1 && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

INLINE void reset(const struct sock *sk, struct anb_socket *s)
{
	u32 *all = lookup_rule(sk->__sk_common.skc_net.net->net_cookie, RULE_ALL, 0, 0, 0, 0);

	s->all = all ? *all + 1 : 0;
	s->token = 0;
	s->connection = 0;
	s->slot = NO_SLOT;
	s->group = 0;
	s->round_end = 0;
	s->delivered = 0;
	s->step.round = 0;
	s->step.n = 0;
	s->step.srtt_ns = 0;
}

// One controller: its functions in Rust, its programs, its row for Linux.
#define CONTROLLER(NAME)                                                                                       \
	extern u32 NAME##_init(struct AnbStep *step);                                                          \
	extern u32 NAME##_ack(struct AnbStep *step);                                                           \
	extern u32 NAME##_congestion(struct AnbStep *step);                                                    \
	extern u32 NAME##_set_window(struct AnbStep *step);                                                    \
                                                                                                               \
	SEC("struct_ops") int init_##NAME(u64 *ctx)                                                         \
	{                                                                                                      \
		struct sock *sk = (void *)ctx[0];                                                              \
		struct anb_socket *s = storage_get(&sockets, sk, 0, STORAGE_CREATE);                           \
		const struct tcp_sock *tp = (void *)sk;                                                        \
                                                                                                               \
		if (!s)                                                                                        \
			return 0;                                                                              \
		if (s->connection)                                                                             \
			leave(sk, s);                                                                          \
		reset(sk, s);                                                                                  \
		s->round_end = tp->snd_una;                                                                    \
		s->delivered = tp->delivered;                                                                  \
		s->last_cwnd = NAME##_init(&s->step);                                                          \
		/* A connection may have had another controller, or be told an ssthresh by its route. */       \
		s->cwnd_max = s->last_cwnd > tp->snd_cwnd ? s->last_cwnd : tp->snd_cwnd;                       \
		if (tp->snd_ssthresh != SSTHRESH_INFINITE && tp->snd_ssthresh > s->cwnd_max)                   \
			s->cwnd_max = tp->snd_ssthresh;                                                        \
		return 0;                                                                                      \
	}                                                                                                      \
                                                                                                               \
	SEC("struct_ops") int release_##NAME(u64 *ctx)                                                      \
	{                                                                                                      \
		struct sock *sk = (void *)ctx[0];                                                              \
		struct anb_socket *s = storage_get(&sockets, sk, 0, 0);                                        \
                                                                                                               \
		if (s && s->connection)                                                                        \
			leave(sk, s);                                                                          \
		return 0;                                                                                      \
	}                                                                                                      \
                                                                                                               \
	SEC("struct_ops") int ack_##NAME(u64 *ctx)                                                          \
	{                                                                                                      \
		struct sock *sk = (void *)ctx[0];                                                              \
		struct anb_socket *s = storage_get(&sockets, sk, 0, 0);                                        \
		struct anb_connection *connection;                                                             \
		struct tcp_sock *tp = (void *)sk;                                                              \
		u32 acked = ctx[2], arrived, cwnd;                                                             \
                                                                                                               \
		if (!s)                                                                                        \
			return 0;                                                                              \
		connection = begin_step(sk, s, NAME##_set_window);                                             \
		/* Recovery is not shown to us; what arrived during it counts, but lets no window grow. */     \
		arrived = tp->delivered - s->delivered;                                                        \
		s->delivered = tp->delivered;                                                                  \
		if ((s32)(arrived - acked) > 0) {                                                              \
			s->step.acked = arrived - acked;                                                       \
			s->step.cwnd_limited = 0;                                                              \
			s->step.recovering = 1;                                                                \
			NAME##_ack(&s->step);                                                                  \
		}                                                                                              \
		s->step.acked = acked;                                                                         \
		s->step.cwnd_limited = is_cwnd_limited(tp);                                                    \
		s->step.recovering = 0;                                                                        \
		cwnd = NAME##_ack(&s->step);                                                                   \
		pace(sk, s);                                                                                   \
		set_cwnd(tp, s, cwnd);                                                                         \
		publish(sk, s, connection);                                                                    \
		return 0;                                                                                      \
	}                                                                                                      \
                                                                                                               \
	SEC("struct_ops") int cut_##NAME(u64 *ctx)                                                          \
	{                                                                                                      \
		struct sock *sk = (void *)ctx[0];                                                              \
		struct anb_socket *s = storage_get(&sockets, sk, 0, 0);                                        \
		struct anb_connection *connection;                                                             \
		struct tcp_sock *tp = (void *)sk;                                                              \
		u32 half = tp->snd_cwnd >> 1, cwnd, unanswered;                                                \
                                                                                                               \
		if (!s)                                                                                        \
			return half > 2 ? half : 2;                                                            \
		unanswered = is_unanswered(tp, s);                                                             \
		connection = begin_step(sk, s, NAME##_set_window);                                             \
		if (unanswered) {                                                                              \
			/* That was the half; this event is paid for. */                                       \
			s->last_cwnd = tp->snd_cwnd;                                                           \
			publish(sk, s, connection);                                                            \
			return tp->snd_ssthresh;                                                               \
		}                                                                                              \
		/* A timeout looks the same from here: the kernel then sets the window itself. */              \
		s->step.cause = 0;                                                                             \
		cwnd = NAME##_congestion(&s->step);                                                            \
		if (cwnd < CWND_MIN) {                                                                         \
			/* Delayed acknowledgements would keep a smaller one waiting. */                       \
			cwnd = s->step.cwnd = s->step.ssthresh = CWND_MIN;                                     \
			NAME##_set_window(&s->step);                                                           \
		}                                                                                              \
		s->last_cwnd = cwnd;                                                                           \
		publish(sk, s, connection);                                                                    \
		return cwnd;                                                                                   \
	}                                                                                                      \
                                                                                                               \
	SEC("struct_ops") int undo_##NAME(u64 *ctx)                                                         \
	{                                                                                                      \
		const struct tcp_sock *tp = (void *)ctx[0];                                                    \
                                                                                                               \
		return tp->snd_cwnd > tp->prior_cwnd ? tp->snd_cwnd : tp->prior_cwnd;                          \
	}                                                                                                      \
                                                                                                               \
	SEC(".struct_ops.link") struct tcp_congestion_ops NAME##_ops = {                                       \
		.init = (void *)init_##NAME,                                                                \
		.release = (void *)release_##NAME,                                                          \
		.ssthresh = (void *)cut_##NAME,                                                             \
		.cong_avoid = (void *)ack_##NAME,                                                           \
		.undo_cwnd = (void *)undo_##NAME,                                                           \
		.name = #NAME,                                                                                 \
		.flags = TCP_CONG_NON_RESTRICTED,                                                              \
	};                                                                                                     \
                                                                                                               \
	/* For the test that holds this to the host, step by step. */                                          \
	SEC("syscall") int parity_##NAME(void *ctx)                                                            \
	{                                                                                                      \
		u32 zero = 0;                                                                                  \
		struct parity *p = map_lookup(&parity, &zero);                                                 \
                                                                                                               \
		if (!p)                                                                                        \
			return 1;                                                                              \
		if (p->op == OP_INIT)                                                                          \
			p->cwnd = NAME##_init(&p->step);                                                       \
		else if (p->op == OP_ACK)                                                                      \
			p->cwnd = NAME##_ack(&p->step);                                                        \
		else if (p->op == OP_CONGESTION)                                                               \
			p->cwnd = NAME##_congestion(&p->step);                                                 \
		else                                                                                           \
			p->cwnd = NAME##_set_window(&p->step);                                                 \
		return 0;                                                                                      \
	}

CONTROLLERS

char anb_license[] SEC("license") = "GPL";
