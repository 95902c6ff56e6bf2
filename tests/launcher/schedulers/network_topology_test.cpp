#include "smp/launcher/schedulers/network_topology.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <set>

#include "files_and_errors.h"
#include "smp/launcher/schedulers/slurm.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::hosts;
using namespace smp::schedulers;

namespace {

// What Slurm 22.05 prints for two switches below one.
constexpr const char* kSlurmTree =
    "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1,3]\n"
    "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2,4]\n"
    "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[0-1]\n";

constexpr const char* kInstanceTopology = R"({"Instances": [
  {"InstanceId": "i-01", "InstanceType": "p4d.24xlarge", "NetworkNodes": ["nn-t", "nn-a", "nn-1"],
   "AvailabilityZone": "us-west-2a", "ZoneId": "usw2-az2"},
  {"InstanceId": "i-02", "NetworkNodes": ["nn-t", "nn-b", "nn-2"]},
  {"InstanceId": "i-03", "NetworkNodes": ["nn-t", "nn-a", "nn-3"]},
  {"InstanceId": "i-04", "NetworkNodes": ["nn-t", "nn-b", "nn-2"]},
  {"InstanceId": "i-05", "NetworkNodes": ["nn-t", "nn-a", "nn-1"]}]})";

constexpr const char* kInstances = R"({"Reservations": [
  {"Instances": [{"InstanceId": "i-01", "PrivateIpAddress": "10.0.0.1",
                  "PrivateDnsName": "ip-10-0-0-1.us-west-2.compute.internal"},
                 {"InstanceId": "i-99", "PrivateIpAddress": "10.0.0.99"}]},
  {"Instances": [{"InstanceId": "i-02", "PrivateIpAddress": "10.0.0.2"},
                 {"InstanceId": "i-05", "PrivateIpAddress": "10.0.0.5",
                  "PrivateDnsName": "ip-10-0-0-5.us-west-2.compute.internal"}]}]})";

std::string names_of(const std::vector<HostSpec>& hosts) {
  std::vector<std::string> names;
  for (const HostSpec& host : hosts) names.push_back(host.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string order(const std::string& hosts, const std::vector<TopologyText>& texts) {
  return names_of(
      order_by_switches(parse_hosts(hosts), parse_network_topology(texts), "a file").hosts);
}

std::string error_in(const std::string& text) {
  return error_of([&] { parse_network_topology({{"f", text}}); });
}

}  // namespace

TEST_CASE("hosts at one switch of Slurm follow each other, the first stays the first") {
  CHECK(order("n[1-4]", {{"slurm", kSlurmTree}}) == "n1 n3 n2 n4");
  CHECK(order("n4,n3,n2,n1", {{"slurm", kSlurmTree}}) == "n4 n2 n3 n1");
  CHECK(order("n2,n4,n3", {{"slurm", kSlurmTree}}) == "n2 n4 n3");
  CHECK(order("n[1-4].cluster.example:8", {{"slurm", kSlurmTree}}) ==
        "n1.cluster.example n3.cluster.example n2.cluster.example n4.cluster.example");
  const HostOrder ordered = order_by_switches(
      parse_hosts("n1:2,x:3,n2:4,n3:5"), parse_network_topology({{"slurm", kSlurmTree}}), "slurm");
  CHECK(names_of(ordered.hosts) == "n1 n3 n2 x");
  CHECK(ordered.hosts[1].slots == 5);  // each keeps what is said of it
  CHECK(ordered.text ==
        "hosts in the order of their switches, from slurm: 1 of 3 neighbours share a switch (0 in "
        "the listed order); hosts with an unknown switch: 1");
}

TEST_CASE("a topology.conf: three levels, comments, keys in any case, blocks") {
  const std::string file =
      "# our racks\n"
      "SwitchName=r1 Nodes=a[1-2]\nswitchname=r2 nodes=b[1-2]  # the old one\n"
      "SwitchName=r3 Nodes=c[1-2]\n\n"
      "SwitchName=hall1 Switches=r1,r3\r\nSwitchName=hall2 Switches=r2\n"
      "SwitchName=top Switches=hall[1-2]\n";
  CHECK(order("a1,b1,c1,a2,b2,c2", {{"topology.conf", file}}) == "a1 a2 c1 c2 b1 b2");
  CHECK(order("b1,c1,a1,c2,b2", {{"topology.conf", file}}) == "b1 b2 c1 c2 a1");
  CHECK(order("n1,m1,n2", {{"topology.conf",
                            "BlockName=x BlockIndex=0 Nodes=n[1-2] BlockSize=2\n"
                            "BlockName=y BlockIndex=1 Nodes=m1 BlockSize=2\n"}}) == "n1 n2 m1");
}

TEST_CASE("EC2's topology goes by instance, and by the names that describe-instances gives") {
  CHECK(order("i-01,i-02,i-03,i-04,i-05", {{"t", kInstanceTopology}}) ==
        "i-01 i-05 i-03 i-02 i-04");
  const std::vector<TopologyText> both = {{"t", kInstanceTopology}, {"i", kInstances}};
  CHECK(order("10.0.0.1,10.0.0.2,10.0.0.5", both) == "10.0.0.1 10.0.0.5 10.0.0.2");
  CHECK(order("ip-10-0-0-1,10.0.0.2,ip-10-0-0-5.us-west-2.compute.internal", both) ==
        "ip-10-0-0-1 ip-10-0-0-5.us-west-2.compute.internal 10.0.0.2");
  CHECK(order("i-02,i-01,i-04", {both[1], both[0]}) == "i-02 i-04 i-01");  // in any order
}

TEST_CASE("an order of hosts has each of them once, and none crosses a switch twice") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    std::string file = "SwitchName=top Switches=s[0-6]\n", list;
    std::vector<std::string> hosts;
    for (int rack = 0; rack < 7; ++rack) {
      file += fmt::format("SwitchName=s{} Nodes=h{}x[0-8]\n", rack, rack);
      for (int i = 0; i < 9; ++i) hosts.push_back(fmt::format("h{}x{}", rack, i));
    }
    std::shuffle(hosts.begin(), hosts.end(), random);
    const HostOrder ordered =
        order_by_switches(parse_hosts(fmt::format("{}", fmt::join(hosts, ","))),
                          parse_network_topology({{"f", file}}), "f");
    std::set<std::string> seen;
    std::set<char> racks;
    char rack = 0;
    for (const HostSpec& host : ordered.hosts) {
      seen.insert(host.name);
      if (host.name[1] != rack) CHECK(racks.insert(rack = host.name[1]).second);
    }
    CHECK(seen.size() == hosts.size());
    CHECK(ordered.hosts.front().name == hosts.front());
    CHECK(ordered.text.find("f: 56 of 62 neighbours share a switch") != std::string::npos);
  }
}

TEST_CASE("what is wrong with a file of switches is said with its place") {
  CHECK(error_in("SwitchName=a Nodes=n1\nNodes=n2\n") ==
        "f:2: the line has no name of a switch: expected SwitchName= or BlockName=");
  CHECK(error_in("hello world") ==
        "f:1: unexpected 'hello': expected a line such as SwitchName=s0 Nodes=n[1-4]");
  CHECK(error_in("SwitchName=a Nodes=n[1\n") ==
        "f:1: 'n[1' is not a list of names like n[1-3,7],big");
  CHECK(error_in("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n") ==
        "f:2: switch 'a' is described twice");
  CHECK(error_in("SwitchName=a Switches=b\n") ==
        "f: switch 'b' is below 'a', but is not described");
  CHECK(error_in("SwitchName=a Switches=b\nSwitchName=b Switches=a\n") ==
        "f: switch 'a' is below itself");
  const std::string not_ec2 =
      "f: neither the JSON of aws ec2 describe-instance-topology nor that of describe-instances";
  CHECK(error_in("{}") == not_ec2);
  CHECK(error_in(R"({"Instances": [)") == not_ec2);
  CHECK(error_in(R"({"Instances": 3})") == "f: 'Instances' is not a list");
  CHECK(error_in(R"({"Instances": [{}]})") == "f: an instance without InstanceId");
  CHECK(error_in(R"({"Instances": [{"InstanceId": "i-1", "NetworkNodes": [1]}]})") ==
        "f: i-1: a network node that is not a string");
  CHECK(error_of([] {
          order_by_switches(parse_hosts("x,y"), parse_network_topology({{"f", kSlurmTree}}), "f");
        }) == "f: the topology has none of the hosts, such as 'x'");
}
