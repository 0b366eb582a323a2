// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//
// Counts for subflows.py how often siblings acknowledge, and send, at the same moment, and what made them acknowledge.
// Packets are seen when a device is given them. Those whose receiver has the same port are siblings, whether or not they
// are one connection. An acknowledgement was made by a function if that is on the stack: kprobes are not needed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define CORE __attribute__((preserve_access_index))

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*ktime_ns)(void) = (void *)5;
static long (*probe_read)(void *to, u32 size, const void *from) = (void *)113;
static long (*get_stack)(void *ctx, void *buffer, u32 size, u64 flags) = (void *)67;

struct sock_common {
	u16 skc_dport, skc_num;
} CORE;
struct sock {
	struct sock_common __sk_common;
} CORE;
struct sk_buff {
	struct sock *sk;
	u32 len, end;
	u16 transport_header;
	u8 *head;
	u8 cb[48];
} CORE;
struct skb_shared_info {
	u16 gso_size;
} CORE;

// As in subflows.py. Of acknowledgements: all, those of a reader, those within TOGETHER_NS of a sibling's, and of these
// those where both are of a reader. Of data: bursts of packets, and those within TOGETHER_NS of a sibling's; packets, and
// those that were sent again, by kind: FRESH and TOGETHER.
struct counts {
	u64 acks, acks_read, acks_together, acks_together_read, sends, sends_together, packets[4], lost[4], acked[6], late[6];
};
// What a subflow had not got before: it had room and nothing to send.
#define FRESH 1
// Within TOGETHER_NS of a sibling's.
#define TOGETHER 2
struct last {
	u64 sk, at, read;
};
// How long after the last packet of its subflow an acknowledgement leaves: up to 0.1, 0.3, 0.6, 1.2, 5 ms, later.
#define LATE(ns) (ns <= 100000 ? 0 : ns <= 300000 ? 1 : ns <= 600000 ? 2 : ns <= 1200000 ? 3 : ns <= 5000000 ? 4 : 5)
// Packets that an acknowledgement brings: up to 1, 2, 4, 8, 16, more.
#define ACKED(bytes) (bytes <= 1500 ? 0 : bytes <= 3000 ? 1 : bytes <= 6000 ? 2 : bytes <= 12000 ? 3 : bytes <= 24000 ? 4 : 5)
// Places of functions: those of readers, and those that give a subflow data.
struct functions {
	u64 begin[5], end[5];
};
struct packet {
	u64 sk;
	u32 seq, unused;
};

struct {
	__uint(type, 1 /* hash */);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct counts);
} counts SEC(".maps");
struct {
	__uint(type, 1);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct last);
} last_ack SEC(".maps");
struct {
	__uint(type, 1);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct last);
} last_send SEC(".maps");
struct {
	__uint(type, 9);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u32);
} acked_to SEC(".maps");
struct {
	__uint(type, 9);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u64);
} arrived SEC(".maps");
struct {
	__uint(type, 9 /* the most recent */);
	__uint(max_entries, 65536);
	__type(key, struct packet);
	__type(value, u32);
} kinds SEC(".maps");
struct {
	__uint(type, 2 /* array */);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct functions);
} functions SEC(".maps");

#define TOGETHER_NS 100000
#define FRAMES 24
#define BURST_MAX 45
#define ACK_BYTES_MAX 200
#define HEADER_BYTES_MAX 120

// Whether functions from `first` on, `count` of them, are on the stack.
static inline __attribute__((always_inline)) u64 is_within(void *ctx, u32 first, u32 count)
{
	u32 zero = 0;
	u64 frames[FRAMES] = {};
	const struct functions *f = map_lookup(&functions, &zero);

	if (!f || get_stack(ctx, frames, sizeof(frames), 0) < 0)
		return 0;
#pragma unroll
	for (u32 i = 0; i < FRAMES; i++) {
		for (u32 of = first; of < first + count; of++) {
			if (frames[i] > f->begin[of] && frames[i] < f->end[of])
				return 1;
		}
	}
	return 0;
}

SEC("tp_btf/net_dev_queue") int queued(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct sock *sk = skb->sk;
	struct last new = { .sk = (u64)sk, .at = ktime_ns() }, *last;
	struct packet packet = { .sk = (u64)sk };
	struct skb_shared_info *info;
	struct counts *c;
	u32 port, kind = 0, left;
	u64 *came;
	u16 size = 0;

	if (!sk)
		return 0;
	port = sk->__sk_common.skc_num;
	c = map_lookup(&counts, &port);
	if (c && skb->len < ACK_BYTES_MAX) {
		u32 ack = 0, *before = map_lookup(&acked_to, &new.sk), bytes;

		probe_read(&ack, sizeof(ack), skb->head + skb->transport_header + 8);
		ack = __builtin_bswap32(ack);
		if (before) {
			bytes = ack - *before;
			if (bytes && bytes < 1000000)
				__sync_fetch_and_add(&c->acked[ACKED(bytes)], bytes);
		}
		map_update(&acked_to, &new.sk, &ack, 0);
		came = map_lookup(&arrived, &new.sk);
		if (came)
			__sync_fetch_and_add(&c->late[LATE((new.at - *came))], 1);
		new.read = is_within(ctx, 0, 2);
		last = map_lookup(&last_ack, &port);
		__sync_fetch_and_add(&c->acks, 1);
		__sync_fetch_and_add(&c->acks_read, new.read);
		if (last && last->sk != new.sk && new.at - last->at < TOGETHER_NS) {
			__sync_fetch_and_add(&c->acks_together, 1);
			__sync_fetch_and_add(&c->acks_together_read, new.read & last->read);
		}
		map_update(&last_ack, &port, &new, 0);
		return 0;
	}
	port = __builtin_bswap16(sk->__sk_common.skc_dport);
	c = map_lookup(&counts, &port);
	if (!c || skb->len < ACK_BYTES_MAX)
		return 0;
	last = map_lookup(&last_send, &port);
	__sync_fetch_and_add(&c->sends, 1);
	if (last && last->sk != new.sk && new.at - last->at < TOGETHER_NS) {
		__sync_fetch_and_add(&c->sends_together, 1);
		kind = TOGETHER;
	}
	if (is_within(ctx, 2, 3))
		kind |= FRESH;
	map_update(&last_send, &port, &new, 0);
	probe_read(&packet.seq, sizeof(packet.seq), skb->head + skb->transport_header + 4);
	packet.seq = __builtin_bswap32(packet.seq);
	info = (void *)(skb->head + skb->end);
	probe_read(&size, sizeof(size), &info->gso_size);
	left = skb->len;
	for (u32 i = 0; i < BURST_MAX; i++) {
		if (!i || (size && left > HEADER_BYTES_MAX)) {
			__sync_fetch_and_add(&c->packets[kind & 3], 1);
			map_update(&kinds, &packet, &kind, 0);
			packet.seq += size;
			left -= size;
		}
	}
	return 0;
}

SEC("tp_btf/tcp_probe") int comes(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	u32 port = sk->__sk_common.skc_num;
	u64 key = (u64)sk, now = ktime_ns();

	if (map_lookup(&counts, &port))
		map_update(&arrived, &key, &now, 0);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb") int again(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct sk_buff *skb = (void *)ctx[1];
	u32 port = __builtin_bswap16(sk->__sk_common.skc_dport), *kind;
	struct counts *c = map_lookup(&counts, &port);
	struct packet packet = { .sk = (u64)sk };

	if (!c)
		return 0;
	probe_read(&packet.seq, sizeof(packet.seq), skb->cb);
	kind = map_lookup(&kinds, &packet);
	if (kind)
		__sync_fetch_and_add(&c->lost[*kind & 3], 1);
	return 0;
}

char anb_license[] SEC("license") = "GPL";
