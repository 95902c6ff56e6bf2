#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "scratch_folder.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/hosts/rank_list.h"
#include "smp/launcher/process/error_file.h"
#include "smp/launcher/run/run_summary.h"
#include "smp/launcher/supervision/report.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/random_hex.h"
#include "smp/plan/spec/plan.h"

using namespace smp;
using namespace smp::environment;
using namespace smp::hosts;
using namespace smp::job;
using namespace smp::mesh;
using namespace smp::process;
using namespace smp::run;
using namespace smp::supervision;
using namespace smp::system;
using std::chrono::milliseconds;

TEST_CASE("names of hosts are said as far as a variable may hold them") {
  CHECK(host_names_of({"a", "b"}) == "a,b");
  CHECK(host_names_of({}).empty());
  const std::string name(1023, 'x');
  CHECK(host_names_of(std::vector<std::string>(100, name)).size() == 100 * 1024 - 1);
  CHECK(host_names_of(std::vector<std::string>(101, name)).empty());
}

TEST_CASE("durations") {
  CHECK(parse_duration("87600h") == std::chrono::hours(87'600));
  for (const std::string& text : {std::string("87601h"), std::string(400, '9') + "s"}) {
    CHECK_THROWS_WITH_AS(
        parse_duration(text),
        ("'" + text + "' is longer than the longest duration, 87600h (10 years)").c_str(),
        ConfigError);
  }
  CHECK(parse_duration("250ms") == milliseconds(250));
  CHECK(parse_duration("5s") == milliseconds(5000));
  CHECK(parse_duration("0.5") == milliseconds(500));
  CHECK(parse_duration("2m") == milliseconds(120'000));
  CHECK(parse_duration("1h") == milliseconds(3'600'000));
  for (const char* text : {"", "s", "5 s", "-1s", "1d", "nan", "inf", "1e3", "5sec", "99999999h"})
    CHECK_THROWS_AS(parse_duration(text), ConfigError);
  CHECK(duration_text(milliseconds(12)) == "12 ms");
  CHECK(duration_text(milliseconds(3240)) == "3.2 s");
  CHECK(duration_text(milliseconds(125'000)) == "2 min 5 s");
}

TEST_CASE("lists of ranks, read and written") {
  CHECK(parse_rank_list("0,2-3", 4) == std::set<int>{0, 2, 3});
  CHECK(parse_rank_list("all", 2) == std::set<int>{0, 1});
  CHECK(parse_rank_list("none", 2).empty());
  CHECK(text_of_ranks({3}) == "rank 3");
  CHECK(text_of_ranks({0, 1}) == "ranks 0, 1");
  CHECK(text_of_ranks({0, 2, 3, 4, 7}) == "ranks 0, 2-4, 7");
}

TEST_CASE("signals by name") {
  CHECK(signal_name(SIGSEGV) == "SIGSEGV");
  CHECK(signal_name(SIGRTMIN + 3) == "SIGRTMIN+3");
  CHECK(text_of(ProcessEnd{0, SIGSEGV, true}) ==
        "was killed by SIGSEGV (Segmentation fault), core dumped");
}

TEST_CASE("error files: whole, broken, absent") {
  ScratchFolder folder;
  const std::string path = folder / "rank-1.json";
  CHECK(read_error_file(path) == "");
  const auto read_back = [&](const std::string& text) {
    std::ofstream(path) << text;
    CHECK(read_error_file(path) == text);
    return parse_last_words(text, 1, 4);
  };
  const auto error = read_back(
      R"({"rank":1,"kind":"peer_lost","culprit":3,"phase":"step 7: backward","message":"gone"})");
  REQUIRE(error);
  CHECK(error->kind == RankErrorKind::kPeerLost);
  CHECK(error->culprit == 3);
  CHECK(error->blames_another());
  CHECK(error->phase == "step 7: backward");
  CHECK(error->message == "gone");
  CHECK(!read_back(R"({"kind":"own","message":"x"})")->blames_another());
  CHECK(!read_back(R"({"kind":"own","culprit":9})")->blames_another());
  for (const char* text : {"", "{", "[]", "{}", R"({"kind":5})", R"({"kind":"own","culprit":"x"})",
                           R"({"kind":"nonsense"})"})
    CHECK(!read_back(text));
  // As torch's @record leaves it.
  const auto torch = read_back(R"({"message": {"message": "ValueError: x", "extraInfo": {}}})");
  REQUIRE(torch);
  CHECK(torch->kind == RankErrorKind::kOwn);
  CHECK(torch->message == "ValueError: x");
}

TEST_CASE("a rank's environment takes the place of what was there") {
  const std::vector<std::string> merged = merged_environment(
      {"PATH=/bin", "RANK=7", "SMP_JOB_KEY=old", "SMP_FAULT=x", "odd"}, {"RANK=1"});
  CHECK(merged == std::vector<std::string>{"PATH=/bin", "SMP_FAULT=x", "odd", "RANK=1"});
}

TEST_CASE("OMP_NUM_THREADS shares the CPUs out, and is never 0") {
  const auto threads = [](int cpus, int ranks) {
    RankPlace place = places_on({ranks}).front();
    place.cpus = cpus;
    for (const std::string& variable : variables_of_rank({}, place, 0, "", {})) {
      if (variable.starts_with("OMP_NUM_THREADS=")) return variable.substr(16);
    }
    return std::string("unset");
  };
  CHECK(threads(8, 3) == "2");
  CHECK(threads(2, 4) == "1");
}

TEST_CASE("ranks fill host after host: GPUs that were named are those they see") {
  const std::vector<RankPlace> places = places_on({2, 1});
  REQUIRE(places.size() == 3);
  CHECK(places[1].local_rank == 1);
  CHECK(places[2].host == 1);
  CHECK(places[2].local_rank == 0);
  CHECK(places[2].local_world_size == 1);
  RankPlace place = places[0];
  place.visible_gpus = "0,3";
  place.coordinates = Coord{.pipeline = 1, .tensor = 2, .shard = 3, .replica = 4, .context = 5};
  place.sagemaker = SageMakerHost{"[\"a\"]", "a", "8"};
  const auto variables = variables_of_rank({}, place, 0, "", {});
  for (const char* variable :
       {"CUDA_VISIBLE_DEVICES=0,3", "SMP_PIPELINE_RANK=1", "SMP_TENSOR_RANK=2", "SMP_SHARD_RANK=3",
        "SMP_REPLICA_RANK=4", "SMP_CONTEXT_RANK=5", "SM_HOSTS=[\"a\"]", "SM_CURRENT_HOST=a",
        "SM_NUM_GPUS=8"})
    CHECK(std::find(variables.begin(), variables.end(), variable) != variables.end());
  place.visible_gpus.reset();
  for (const std::string& variable : variables_of_rank({}, place, 0, "", {}))
    CHECK(!variable.starts_with("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("job keys are 256 bits and differ: ports are reserved") {
  CHECK(random_hex(32).size() == 64);
  CHECK(random_hex(32) != random_hex(32));
  const ReservedPort a, b;
  CHECK(a.number() != b.number());
  CHECK(a.number() > 1023);
}

TEST_CASE("nobody shares a reserved port that is not lent, and whoever listens first has it then") {
  const ReservedPort port;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port.number()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto try_to_listen = [&](FileDescriptor& socket, std::vector<int> options) {
    socket = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    for (const int option : options)
      CHECK(setsockopt(socket.number(), SOL_SOCKET, option, &on, sizeof on) == 0);
    return bind(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
           listen(socket.number(), 1) == 0;
  };
  FileDescriptor stranger, rank;
  CHECK_FALSE(try_to_listen(stranger, {SO_REUSEADDR}));
  CHECK_FALSE(try_to_listen(stranger, {SO_REUSEADDR, SO_REUSEPORT}));
  port.lend(true);
  CHECK_FALSE(try_to_listen(stranger, {}));
  CHECK(try_to_listen(rank, {SO_REUSEADDR}));
  CHECK_FALSE(try_to_listen(stranger, {SO_REUSEADDR}));
  rank.reset();
  port.lend(false);
  CHECK_FALSE(try_to_listen(stranger, {SO_REUSEADDR}));
  port.lend(true);
  CHECK(try_to_listen(rank, {SO_REUSEADDR}));  // that of the next start
}

TEST_CASE("the summary of a run puts what was measured beside what was predicted") {
  ScratchFolder folder;
  Plan plan;
  plan.degrees = {.pipeline = 1, .tensor = 2, .shard = 1, .replica = 1};
  plan.reasons = {"tensor 2: pinned"};
  plan.job.cluster.memory_per_process_bytes = 4 << 20;
  CHECK_THROWS_WITH_AS(run_summary(plan, folder.path()),
                       ((folder / "report.json") + ": the run wrote no report").c_str(),
                       ConfigError);
  std::ofstream(folder / "report.json")
      << R"({"steps":30,"loss":{"first":5.5,"last":2.25},"tokens_per_s":1234.4,"predicted_step_s":0.02,)"
      << R"("measured_step_s":0.025,"ranks":[)"
      << R"({"rank":0,"predicted_peak_bytes":2097152,"measured_peak_bytes":1048576}]})";
  CHECK(run_summary(plan, folder.path()).find("weights") == std::string::npos);
  std::filesystem::create_directory(folder / "weights");
  CHECK(run_summary(plan, folder.path()) ==
        "\nrun " + folder.path() +
            "\n"
            "  layout   pipeline 1 x tensor 2 x data 1 (shard 1 x replica 1)\n"
            "  why      tensor 2: pinned\n"
            "  loss     5.5000 -> 2.2500 in 30 steps\n"
            "  speed    1234 tokens/s; a step takes 25.0 ms, predicted 20.0 ms\n"
            "  memory   peak of each rank, limit 4.00 MiB\n"
            "    rank 0       2.00 MiB predicted     1.00 MiB measured  +100.0 %\n"
            "  weights  " +
            folder.path() +
            "/weights (safetensors + config.json, Hugging Face names)\n"
            "  report   " +
            folder.path() + "/report.json, metrics.jsonl, logs/\n");
  plan.job.training.metrics = {"tensorboard"};
  CHECK(run_summary(plan, folder.path()).ends_with("/report.json, tensorboard/, logs/\n"));
  plan.job.cluster.memory_per_process_bytes = 0;
  CHECK(run_summary(plan, folder.path()).find("  memory   peak of each rank, no limit\n") !=
        std::string::npos);
}
