#include <doctest/doctest.h>

#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/reach/frame_channel.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::environment;
using namespace smp::hosts;
using namespace smp::reach;

namespace {

std::string stream_of(const std::vector<std::string>& payloads) {
  FrameWriter writer;
  std::string bytes;
  for (const std::string& payload : payloads) writer.append(FrameType::kOutput, payload, bytes);
  return bytes;
}

std::vector<std::string> read_in_pieces(const std::string& bytes, size_t piece) {
  FrameReader reader;
  std::vector<std::string> payloads;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.feed(std::string_view(bytes).substr(at, piece));
    for (Frame frame; reader.next(frame);) payloads.emplace_back(frame.payload);
  }
  return payloads;
}

}  // namespace

TEST_CASE("frames come out as they went in, however the stream is cut") {
  const std::vector<std::string> payloads = {"", "a", std::string(1000, '\0'), "\x1esmp-agent\x1e"};
  for (const size_t piece : {1, 2, 9, 100, 10'000})
    CHECK(read_in_pieces(stream_of(payloads), piece) == payloads);
}

TEST_CASE("what a remote shell prints before the agent speaks is kept apart") {
  FrameReader reader;
  reader.feed("Welcome to h3\n");
  Frame frame;
  CHECK(!reader.next(frame));
  CHECK(!reader.begun());
  reader.feed(stream_of({"x"}));
  REQUIRE(reader.next(frame));
  CHECK(frame.payload == "x");
  CHECK(reader.text_before() == "Welcome to h3\n");
  FrameReader noisy;
  noisy.feed(std::string(70'000, 'x'));
  CHECK_THROWS_WITH_AS(noisy.next(frame), "no greeting of an agent within 65536 bytes",
                       wire::ProtocolError);
}

TEST_CASE("a frame that is missing or too large is refused") {
  const std::string two = stream_of({"a", "b"});
  const size_t mark = 11, first = 9 + 1;
  FrameReader reader;
  reader.feed(two.substr(0, mark) + two.substr(mark + first));
  Frame frame;
  CHECK_THROWS_WITH_AS(reader.next(frame), "message 1 instead of 0", wire::ProtocolError);
  FrameReader large;
  large.feed(two.substr(0, mark) + std::string("\xff\xff\xff\x7f\x01\0\0\0\0", 9));
  CHECK_THROWS_WITH_AS(large.next(frame), "a message of 2147483647 bytes", wire::ProtocolError);
}

TEST_CASE("which variables go to other hosts") {
  const std::vector<std::string> own = {"PATH=/bin",    "HOME=/root",      "NCCL_DEBUG=INFO",
                                        "AWS_REGION=x", "NCCL_TOKEN=t",    "OMP_NUM_THREADS=2",
                                        "DATA=a b=c",   "SSH_AUTH_SOCK=s", "MY_SECRET=1"};
  using Variables = std::vector<std::string>;
  CHECK(forwarded_variables(own, {}) ==
        Variables{"PATH=/bin", "NCCL_DEBUG=INFO", "OMP_NUM_THREADS=2"});
  CHECK(forwarded_variables(own, {true, {}}) ==
        Variables{"PATH=/bin", "HOME=/root", "NCCL_DEBUG=INFO", "OMP_NUM_THREADS=2", "DATA=a b=c"});
  CHECK(forwarded_variables(own, {false, {"MY_SECRET", "PATH=/opt", "NEW="}}) ==
        Variables{"NCCL_DEBUG=INFO", "OMP_NUM_THREADS=2", "MY_SECRET=1", "PATH=/opt", "NEW="});
  CHECK_THROWS_WITH_AS(
      forwarded_variables(own, {false, {"NO"}}),
      "--env NO: smp-launch's environment does not have this variable; to set a value, "
      "write --env NO=value",
      ConfigError);
  CHECK(matches_glob("HF_TOKEN_2", "*TOKEN*"));
  CHECK(!matches_glob("MYPATH", "PATH"));
  CHECK(matches_glob("", "*"));
}

TEST_CASE("files of variables") {
  CHECK(parse_env_file("e", "# all\nA=1\n\nB=x # y\r\nC\n") ==
        std::vector<std::string>{"A=1", "B=x # y", "C"});
  CHECK_THROWS_WITH_AS(
      parse_env_file("e", "A=1\n=2\n"),
      "e:2:1: expected NAME=value, or NAME to pass on smp-launch's value\n  =2\n  ^", ConfigError);
}

TEST_CASE("how ssh is called, and what its failures mean") {
  const auto transport = make_agent_transport({"ssh", "-F conf -o 'A=b c'", "/opt/s m/smp-launch"});
  HostSpec host;
  host.name = "h1";
  host.user = "ann";
  host.port = 2222;
  CHECK(transport->command_for(host).arguments ==
        std::vector<std::string>{"ssh", "-F", "conf", "-o", "A=b c", "-T", "-o", "BatchMode=yes",
                                 "-o", "ServerAliveInterval=5", "-p", "2222", "--", "ann@h1",
                                 "'/opt/s m/smp-launch' --agent"});
  const auto why = [&](int code, const std::string& errors) {
    return transport->why_not_reached({code, 0, false, ""}, errors);
  };
  CHECK(why(255, "Warning: x\r\nann@h1: Permission denied (publickey).\r\n") ==
        "login refused: smp-launch needs a key that works without a password (ann@h1: Permission "
        "denied (publickey).)");
  CHECK(why(255, "Host key verification failed.\n") ==
        "host key not accepted: log in once by hand, or fix known_hosts (Host key verification "
        "failed.)");
  CHECK(why(255, "ssh: connect to host h1 port 22: Connection refused\n") ==
        "connection refused: no sshd there (ssh: connect to host h1 port 22: Connection refused)");
  CHECK(why(255, "ssh: connect to host h1 port 22: No route to host\n").starts_with("no route ("));
  CHECK(
      why(127, "bash: smp-launch: No such file or directory\n") ==
      "no smp-launch at '/opt/s m/smp-launch' on that host: give its path with --agent-path (bash: "
      "smp-launch: No such file or directory)");
  CHECK(why(3, "") == "no agent: the command ended with exit code 3");

  // What MaxStartups does to a connection is worth another try; what other refusals do is not.
  const auto dropped = [&](int code, const std::string& errors) {
    return transport->was_dropped({code, 0, false, ""}, errors);
  };
  CHECK(dropped(255, "kex_exchange_identification: Connection closed by remote host\r\n"));
  CHECK(dropped(255, "ssh_exchange_identification: Connection closed by remote host\r\n"));
  CHECK(dropped(255,
                "kex_exchange_identification: read: Connection reset by peer\r\n"
                "Connection reset by 10.0.0.1 port 22\r\n"));
  CHECK(!dropped(1, "kex_exchange_identification: Connection closed by remote host\r\n"));
  CHECK(!dropped(255, "Connection closed by 10.0.0.1 port 22\r\n"));
  CHECK(!dropped(255, "Connection reset by 10.0.0.1 port 22\r\n"));
  CHECK(!dropped(255, "ssh: connect to host h1 port 22: Connection refused\n"));
  CHECK(!make_agent_transport({"local", "", "a"})
             ->was_dropped({255, 0, false, ""},
                           "kex_exchange_"
                           "identification: Connection closed by remote host"));
}
