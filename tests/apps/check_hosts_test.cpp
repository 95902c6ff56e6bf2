#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "held_port.h"
#include "program.h"
#include "smp/plan/text/json.h"

// smp-launch --check and doctor, from outside. The hosts are this machine.

using namespace smp;
using namespace smp::text;

TEST_CASE("--check shows every host in one table, and says which was not reached") {
  const std::vector<std::string> check = {SMP_LAUNCH, "--check", "--hosts", "a,b"};
  const ProgramEnd good = run_program(joined(check, {"--via", "local"}));
  CHECK(contains(good.out, "host  reached  clock"));
  CHECK(contains(good.out, "\na     yes      "));
  CHECK_FALSE(contains(good.out, "-0.0 s"));
  CHECK(contains(good.out, "\nranks of 2 hosts meet over lo"));
  CHECK(contains(good.out, "\n2 connections between hosts: 0."));
  CHECK(contains(good.out, "\nb     yes      "));
  CHECK(good.code == (contains(good.out, "2 hosts: no problem found\n") ? 0 : 1));
  const ProgramEnd bad = run_program(
      joined(check, {"--via",
                     "exec:test $SMP_HOST = b && { echo no >&2; exit 3; }; exec $SMP_AGENT "
                     "--agent"}));
  CHECK(bad.code == 1);
  CHECK(contains(bad.out, "\nb     NO\n"));
  CHECK(contains(bad.out, "host b: no agent: the command ended with exit code 3 (no)\n"));
  const ProgramEnd many =
      run_program({SMP_LAUNCH, "--check", "--hosts", "a:4000", "--via", "local"});
  CHECK(many.code == 1);
  CHECK(contains(many.out, " for 4000 ranks: ranks that share a core wait for each other"));
  CHECK(contains(run_program({SMP_LAUNCH, "--check"}).out, "reached"));
}

TEST_CASE("the probe of a host says whom it reaches, and why not") {
  const HeldPort refusing, silent;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // accepts nobody
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(silent.number()));
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(listener, 8) == 0);
  const std::string script = fmt::format(
      "coproc P {{ {} --probe; }}; say() {{ echo \"$@\" >&${{P[1]}}; }}\n"
      "say listen 0123456789 127.0.0.1 200; read -u ${{P[0]}} here port rest; echo $here\n"
      "say peer 0 127.0.0.1 $port; say peer 1 127.0.0.1 {}; say peer 2 127.0.0.1 {}\n"
      "say peer 3 nowhere 1; say go\n"
      "while read -u ${{P[0]}} line; do echo $line; test \"$line\" = done && break; done",
      SMP_LAUNCH, refusing.number(), silent.number());
  const ProgramEnd end = run_program({"/bin/bash", "-c", script});
  close(listener);
  CHECK(contains(end.out, "here\n"));
  CHECK(contains(end.out, "\nreached 0 "));
  CHECK(contains(end.out, "\nunreached 1 Connection refused\n"));
  CHECK(contains(end.out, "\nunreached 2 no answer in 0.2 s\n"));
  CHECK(contains(end.out, "\nunreached 3 'nowhere': Name or service not known\n"));
  CHECK(end.out.ends_with("\ndone\n"));
  const ProgramEnd nowhere = run_program(
      {"/bin/sh", "-c", fmt::format("echo listen 01 nowhere 200 | {} --probe", SMP_LAUNCH)});
  CHECK(nowhere.code == 1);
  CHECK(nowhere.out == "cannot find the address of 'nowhere': Name or service not known\n");
}

TEST_CASE("GPUs that somebody holds, or that have failed, are told by a check and at the start") {
  const ScratchFolder folder;
  std::ofstream(folder / "pid") << getpid();
  const std::vector<std::string> gpus = {
      "LD_LIBRARY_PATH=" + std::filesystem::path(FAKE_NVML).parent_path().string(),
      "FAKE_NVML_PID=" + (folder / "pid"), "FAKE_NVML_ECC=2"};
  const std::string errors =
      "GPU errors: GPU 1: 2 uncorrectable memory errors since the driver was loaded";
  const std::string held =
      fmt::format("GPUs in use: GPU 0: process {} (smp_launch_test) of ", getpid());
  const ProgramEnd check =
      run_program({SMP_LAUNCH, "--check", "--hosts", "a", "--via", "local"}, gpus);
  CHECK(check.code == 1);
  CHECK(contains(check.out, "host a: " + errors + ": reset the GPU"));
  CHECK(contains(check.out, "host a: " + held));
  CHECK(contains(check.out, ", 55 GiB: wait until these processes end"));
  const ProgramEnd doctor = run_program({SMP_LAUNCH, "doctor"}, gpus);
  CHECK(doctor.code == 1);
  CHECK(contains(doctor.out, "NO  GPUs in use    GPU 0: process "));
  // Of the job's own alone.
  for (const int gpu : {0, 1}) {
    const std::string host = fmt::format("a@gpu={}", gpu);
    const ProgramEnd start = run_program(
        {SMP_LAUNCH, "--hosts", host, "--via", "local", "--", "/bin/echo", "ran"}, gpus);
    CHECK(start.code == 0);
    CHECK(start.out == "[0] ran\n");
    CHECK(contains(start.err, "smp-launch: warning: host a: " + errors + "\n") == (gpu == 1));
    CHECK(contains(start.err, "smp-launch: warning: host a: " + held) == (gpu == 0));
  }
  // A job that uses none is not told.
  CHECK(run_program({SMP_LAUNCH, "--hosts", "a", "--via", "local", "--", "true"}, gpus).err == "");
}

TEST_CASE("--check looks at the spares too") {
  const ProgramEnd end = run_program({SMP_LAUNCH, "--check", "--hosts", "a:1,b:1,c", "--spares",
                                      "1", "--max-restarts", "1", "--via", "local"});
  CHECK(contains(end.out, "\nc     yes      "));
}

TEST_CASE("--check takes no start by hand, and no dry run") {
  const auto error_of = [](const std::vector<std::string>& words) {
    const ProgramEnd end = run_program(joined({SMP_LAUNCH, "--check"}, words));
    CHECK(end.code == 2);
    return end.err.substr(0, end.err.find('\n'));
  };
  CHECK(error_of({"--dry-run", "--hosts", "a"}) ==
        "smp-launch: --check and --dry-run exclude each other: --check reaches the hosts, a dry "
        "run does not");
  CHECK(error_of({"--nnodes", "2", "--node-rank", "0", "--rendezvous", "h:1", "--key-file", "k"}) ==
        "smp-launch: --check needs hosts that smp-launch reaches itself: name the hosts with "
        "--hosts");
}

TEST_CASE("doctor reports this host, as text and as JSON") {
  const ProgramEnd text = run_program({SMP_LAUNCH, "doctor"});
  const ProgramEnd json = run_program({SMP_LAUNCH, "doctor", "--json"});
  CHECK(text.code == json.code);
  const auto parsed = Json::parse(json.out);
  CHECK(parsed["ok"] == (json.code == 0));
  for (const auto& finding : parsed["findings"]) {
    CHECK(contains(text.out, finding["name"].get<std::string>()));
    CHECK(finding["ok"].get<bool>() == finding["fix"].get<std::string>().empty());
  }
  const ProgramEnd poor = run_program(
      {"/bin/sh", "-c", "ulimit -n 100; exec " SMP_LAUNCH " doctor"}, {"PATH=/nowhere"});
  CHECK(poor.code == 1);
  CHECK(contains(poor.out,
                 "NO  open files     100 at most\n"
                 "                   raise the hard limit to 320 (ulimit -Hn, "
                 "limits.conf)\n"));
  CHECK(contains(poor.out,
                 "--  ssh            not in PATH\n                   needed for --hosts: install "
                 "this program\n"));
  const ProgramEnd wrong = run_program({SMP_LAUNCH, "doctor", "--yaml"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.starts_with(
      "smp-launch: doctor: unknown argument '--yaml': the only option is --json\n"));
  CHECK(run_program({SMP_LAUNCH, "doctor", "--help"}).out.starts_with("Usage: smp-launch doctor"));
}
