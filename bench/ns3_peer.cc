// ns3_peer: the rows of the simulator comparison (bench/simulators.py), in ns-3, counted the same way.
//
// Build (Debian 12: apt install ns3 libns3-dev libgsl-dev):
//   FLAGS=$(pkg-config --cflags --libs ns3-core ns3-network ns3-internet ns3-point-to-point ns3-applications)
//   g++ -O2 -std=c++17 ns3_peer.cc -o ns3_peer $FLAGS
//
// Use:
//   ns3_peer torus    [sim_s=10]
//   ns3_peer dumbbell [sim_s=3] [flows=100] [rate_mbps=100] [delay_ms=20] [buffer_pkts=100] [mss=1448]
//                     [access_mbps=1000] [access_delay_ms=1]
//   ns3_peer fattree  [sim_s=0.001] [k=8] [rate_mbps=100000] [delay_us=1] [buffer_pkts=8]
//
// Each prints one JSON object: the row, packets that finished transmission on some link ("link_packets", of
// which "ack_packets" are shorter than 200 bytes), events, CPU seconds of Simulator::Run alone, of the whole
// process, and the greatest resident set.
//
// What differs from the htsim rows, because ns-3 is built that way: ns-3 has no Multipath TCP, so every
// subflow is an independent TCP NewReno connection with SACK; ACKs cross the same links back as real
// packets; a link's delay is the same in both directions, so the forward delay of the htsim row is split
// over the two; queues are drop-tail without the small random-drop band. The traffic-control layer is not
// installed: the only queue is the device's.
//
// torus: each subflow of htsim's ring crosses exactly one of the five links, so without coupling the ring is
// five bottlenecks (8 Mb/s, 25 ms each way, 53 packets) with two flows each, behind feeders of twice the
// rate.
//
// fattree: a k-ary fat tree (k = 8: 128 hosts, 32 edge, 32 aggregation, 16 core switches), a random
// permutation of one long flow per host, up-path chosen by the destination's suffix (two-level table of Al-
// Fares et al., SIGCOMM 2008).

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

uint64_t g_linkPackets = 0;
uint64_t g_ackPackets = 0;
uint16_t g_nextPort = 5000;
uint32_t g_nextRouterAddress = 0xAC100001; // 172.16.0.1 and up: names for router interfaces, never routed to

double
CpuSeconds()
{
    rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + 1e-6 * (r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

void
Transmitted(Ptr<const Packet> packet)
{
    g_linkPackets++;
    if (packet->GetSize() < 200)
    {
        g_ackPackets++;
    }
}

uint32_t
AddInterface(Ptr<NetDevice> device, Ipv4Address address)
{
    Ptr<Ipv4> ipv4 = device->GetNode()->GetObject<Ipv4>();
    uint32_t interface = ipv4->AddInterface(device);
    ipv4->AddAddress(interface, Ipv4InterfaceAddress(address, Ipv4Mask::GetOnes()));
    ipv4->SetUp(interface);
    return interface;
}

struct Link
{
    uint32_t a; // interface index at the first node
    uint32_t b; // interface index at the second node
};

// Joins two nodes; an address of 0 means "a router: give it a name of its own".
Link
Join(Ptr<Node> a,
     Ptr<Node> b,
     double rateMbps,
     Time delay,
     uint32_t bufferPkts,
     uint32_t addrA,
     uint32_t addrB)
{
    PointToPointHelper p2p;
    p2p.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(rateMbps * 1e6))));
    p2p.SetChannelAttribute("Delay", TimeValue(delay));
    p2p.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(std::to_string(bufferPkts) + "p"));
    NetDeviceContainer devices = p2p.Install(a, b);
    for (uint32_t i = 0; i < 2; i++)
    {
        devices.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Transmitted));
    }
    return {AddInterface(devices.Get(0), Ipv4Address(addrA ? addrA : g_nextRouterAddress++)),
            AddInterface(devices.Get(1), Ipv4Address(addrB ? addrB : g_nextRouterAddress++))};
}

Ptr<Ipv4StaticRouting>
Routes(Ptr<Node> node)
{
    Ipv4StaticRoutingHelper helper;
    return helper.GetStaticRouting(node->GetObject<Ipv4>());
}

void
Flow(Ptr<Node> from, Ptr<Node> to, uint32_t toAddress, Time start)
{
    InetSocketAddress address(Ipv4Address(toAddress), g_nextPort++);
    BulkSendHelper source("ns3::TcpSocketFactory", address);
    source.SetAttribute("MaxBytes", UintegerValue(0));
    source.Install(from).Start(start);
    InetSocketAddress local(Ipv4Address::GetAny(), address.GetPort());
    PacketSinkHelper sink("ns3::TcpSocketFactory", local);
    sink.Install(to).Start(Seconds(0));
}

Ptr<Node>
NewNode(const InternetStackHelper& stack)
{
    Ptr<Node> node = CreateObject<Node>();
    stack.Install(node);
    return node;
}

// One bottleneck with `flows` sender-receiver pairs, each behind its own access link at either side.
void
Bottleneck(const InternetStackHelper& stack,
           uint32_t net, // which bottleneck: the second byte of the hosts' addresses
           uint32_t flows,
           double rateMbps,
           Time delay,
           uint32_t bufferPkts,
           double accessMbps,
           Time accessDelay,
           std::mt19937& rng,
           double maxStartS)
{
    const uint32_t feederPkts = 2000;
    Ptr<Node> left = NewNode(stack);
    Ptr<Node> right = NewNode(stack);
    Link middle = Join(left, right, rateMbps, delay, bufferPkts, 0, 0);
    Routes(left)->SetDefaultRoute(Ipv4Address("0.0.0.0"), middle.a);
    Routes(right)->SetDefaultRoute(Ipv4Address("0.0.0.0"), middle.b);
    for (uint32_t i = 0; i < flows; i++)
    {
        uint32_t source = 0x0A000000 | net << 16 | (2 * i + 1);
        uint32_t target = 0x0A000000 | net << 16 | (2 * i + 2);
        Ptr<Node> s = NewNode(stack);
        Ptr<Node> t = NewNode(stack);
        Link in = Join(s, left, accessMbps, accessDelay, feederPkts, source, 0);
        Link out = Join(right, t, accessMbps, accessDelay, feederPkts, 0, target);
        Routes(s)->SetDefaultRoute(Ipv4Address("0.0.0.0"), in.a);
        Routes(t)->SetDefaultRoute(Ipv4Address("0.0.0.0"), out.b);
        Routes(left)->AddHostRouteTo(Ipv4Address(source), in.b);
        Routes(right)->AddHostRouteTo(Ipv4Address(target), out.a);
        double start = maxStartS * std::uniform_real_distribution<double>(0, 1)(rng);
        Flow(s, t, target, Seconds(start));
    }
}

void
FatTree(const InternetStackHelper& stack,
        uint32_t k,
        double rateMbps,
        Time delay,
        uint32_t bufferPkts,
        std::mt19937& rng)
{
    const uint32_t half = k / 2;
    const uint32_t nicPkts = 1000;
    // Compares the last byte only; ranks as a host route, so host routes are inserted before it.
    const Ipv4Mask suffix("0.0.0.255");
    const Ipv4Mask podMask("255.255.0.0");
    std::vector<Ptr<Node>> hosts;
    std::vector<uint32_t> addresses;
    std::vector<Ptr<Node>> cores;
    for (uint32_t c = 0; c < half * half; c++)
    {
        cores.push_back(NewNode(stack));
    }
    for (uint32_t pod = 0; pod < k; pod++)
    {
        std::vector<Ptr<Node>> aggs;
        std::vector<Ptr<Node>> edges;
        for (uint32_t i = 0; i < half; i++)
        {
            aggs.push_back(NewNode(stack));
            edges.push_back(NewNode(stack));
        }
        auto address = [&](uint32_t e, uint32_t h) { return 0x0A000000 | pod << 16 | e << 8 | (h + 2); };
        for (uint32_t e = 0; e < half; e++)
        {
            for (uint32_t h = 0; h < half; h++)
            {
                Ptr<Node> host = NewNode(stack);
                // The NIC queue is deep, the switch's port shallow: two devices, two queues.
                Link l = Join(host, edges[e], rateMbps, delay, bufferPkts, address(e, h), 0);
                auto nic = DynamicCast<PointToPointNetDevice>(host->GetDevice(host->GetNDevices() - 1));
                nic->GetQueue()->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, nicPkts));
                Routes(host)->SetDefaultRoute(Ipv4Address("0.0.0.0"), l.a);
                Routes(edges[e])->AddHostRouteTo(Ipv4Address(address(e, h)), l.b);
                hosts.push_back(host);
                addresses.push_back(address(e, h));
            }
        }
        for (uint32_t e = 0; e < half; e++)
        {
            for (uint32_t a = 0; a < half; a++)
            {
                Link l = Join(edges[e], aggs[a], rateMbps, delay, bufferPkts, 0, 0);
                for (uint32_t h = 0; h < half; h++)
                {
                    Routes(aggs[a])->AddHostRouteTo(Ipv4Address(address(e, h)), l.b);
                }
                uint32_t h = (a + half - e) % half; // edge e sends suffix h up to aggregation (h + e) mod k/2
                Routes(edges[e])->AddNetworkRouteTo(Ipv4Address(h + 2), suffix, l.a);
            }
        }
        for (uint32_t a = 0; a < half; a++)
        {
            for (uint32_t c = 0; c < half; c++)
            {
                Ptr<Node> core = cores[a * half + c];
                Link l = Join(aggs[a], core, rateMbps, delay, bufferPkts, 0, 0);
                Routes(aggs[a])->AddNetworkRouteTo(Ipv4Address(c + 2), suffix, l.a);
                Routes(core)->AddNetworkRouteTo(Ipv4Address(0x0A000000 | pod << 16), podMask, l.b);
            }
        }
    }
    std::vector<uint32_t> to(hosts.size());
    for (uint32_t i = 0; i < to.size(); i++)
    {
        to[i] = i;
    }
    auto fixed = [&]() {
        for (uint32_t i = 0; i < to.size(); i++)
        {
            if (to[i] == i)
            {
                return true;
            }
        }
        return false;
    };
    do
    {
        std::shuffle(to.begin(), to.end(), rng);
    } while (fixed());
    for (uint32_t i = 0; i < hosts.size(); i++)
    {
        Flow(hosts[i], hosts[to[i]], addresses[to[i]], Seconds(0));
    }
}

} // namespace

int
main(int argc, char** argv)
{
    std::string row = argc > 1 ? argv[1] : "";
    auto arg = [&](int i, double otherwise) { return argc > i ? std::stod(argv[i]) : otherwise; };
    std::mt19937 rng(7);
    double simS = 0;
    uint32_t mss = 1448;
    if (row == "torus")
    {
        simS = arg(2, 10);
        mss = 946; // + 20 IP + 20 TCP + 12 timestamps + 2 PPP = 1000 bytes on the link
    }
    else if (row == "dumbbell")
    {
        simS = arg(2, 3);
        mss = static_cast<uint32_t>(arg(7, 1448));
    }
    else if (row == "fattree")
    {
        simS = arg(2, 0.001);
        mss = 1446;
    }
    else
    {
        std::fprintf(stderr, "usage: %s torus|dumbbell|fattree [sim_s ...] (see the source)\n", argv[0]);
        return 2;
    }
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(mss));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(8 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(8 << 20));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1)); // as htsim: one ACK per packet
    Ipv4StaticRoutingHelper routing;
    InternetStackHelper stack;
    stack.SetRoutingHelper(routing);
    stack.SetIpv6StackInstall(false);
    if (row == "torus")
    {
        for (uint32_t link = 0; link < 5; link++)
        {
            Bottleneck(stack, link, 2, 8, MilliSeconds(25), 53, 16, Seconds(0), rng, 0.05);
        }
    }
    else if (row == "dumbbell")
    {
        Bottleneck(stack,
                   0,
                   static_cast<uint32_t>(arg(3, 100)),
                   arg(4, 100),
                   Seconds(arg(5, 20) / 1e3),
                   static_cast<uint32_t>(arg(6, 100)),
                   arg(8, 1000),
                   Seconds(arg(9, 1) / 1e3),
                   rng,
                   0.001);
    }
    else
    {
        uint32_t k = static_cast<uint32_t>(arg(3, 8));
        FatTree(stack, k, arg(4, 100000), Seconds(arg(5, 1) / 1e6), static_cast<uint32_t>(arg(6, 8)), rng);
    }
    double before = CpuSeconds();
    Simulator::Stop(Seconds(simS));
    Simulator::Run();
    double cpu = CpuSeconds() - before;
    uint64_t events = Simulator::GetEventCount();
    rusage r;
    getrusage(RUSAGE_SELF, &r);
    std::printf("{\"row\":\"%s\",\"sim_s\":%g,\"link_packets\":%llu,\"ack_packets\":%llu,\"events\":%llu,"
                "\"cpu_s\":%.6f,\"process_cpu_s\":%.6f,\"rss_kib\":%ld}\n",
                row.c_str(),
                simS,
                static_cast<unsigned long long>(g_linkPackets),
                static_cast<unsigned long long>(g_ackPackets),
                static_cast<unsigned long long>(events),
                cpu,
                CpuSeconds(),
                r.ru_maxrss);
    return 0;
}
