#include "collectives_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "forked_ranks.h"
#include "links.h"
#include "measure.h"
#include "named_values.h"
#include "network_cost.h"
#include "plot.h"
#include "size_range.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/env/environment_reader.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/text/printable.h"
#include "smp/planner/calibration/nccl_tests.h"
#include "smp/rendezvous/sockets/host_identity.h"
#include "tables.h"

namespace smp {
namespace {

constexpr const char* kCollectivesExamples =
    R"(Examples:
  smp-bench collectives -n 4                                four ranks on this host
  smp-launch --hosts a,b -- smp-bench collectives           the ranks of a job, on any hosts
  smp-bench collectives -n 2 --ops all_gather,all_to_all --dtypes bf16 -b 4Ki -e 64Mi --dirty
  smp-bench collectives -n 4 --calibrate --cluster cpu-4 -o mine.yaml
                                                            a cluster file with these links, for smp-plan
  smp-launch --hosts a,b,c -- smp-bench collectives --calibrate --cluster mine.yaml -o mine.yaml
                                                            links between hosts and the network cost
  smp-bench collectives -n 4 --ops all_reduce,all_gather -b 8Ki --predict mine.yaml
                                                            error of the cluster file's predictions
  smp-bench collectives -n 4 --rounds 5 --calibrate --check --cluster cpu-4 -o mine.yaml
                                                            calibrate and predict in the same rounds

A size is that of a rank's full buffer. algbw is size over time; busbw is the bandwidth of the slowest link.
A time is the slowest rank's median over the samples.
)";

struct CollectivesRequest {
  int ranks = 0;  // 0: this process is one of a job's
  std::vector<mesh::CollectiveOp> ops = {mesh::CollectiveOp::kAllReduce};
  std::vector<DType> dtypes = {DType::kF32};
  comm::ReduceOp reduction = comm::ReduceOp::kSum;
  SizeRange sizes;
  BenchOptions options;
  int rounds = 1;
  bool is_private = false;
  std::string json, plot, cluster, output, predictions;
  bool calibrates = false, checks = false, measures_network = false;
};

template <class T, class Names>
std::map<std::string, T> by_name(const Names& values) {
  std::map<std::string, T> names;
  for (const T value : values) names[std::string(name_of(value))] = value;
  return names;
}

std::map<std::string, mesh::CollectiveOp> op_names() {
  auto names = by_name<mesh::CollectiveOp>(std::initializer_list<mesh::CollectiveOp>{
      mesh::CollectiveOp::kAllReduce, mesh::CollectiveOp::kAllGather,
      mesh::CollectiveOp::kReduceScatter, mesh::CollectiveOp::kBroadcast,
      mesh::CollectiveOp::kReduce, mesh::CollectiveOp::kGather, mesh::CollectiveOp::kScatter,
      mesh::CollectiveOp::kAllToAll});
  names["sendrecv"] = mesh::CollectiveOp::kSend;
  return names;
}

std::map<std::string, DType> dtype_names() {
  return by_name<DType>(std::initializer_list<DType>{
      DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8});
}

std::map<std::string, comm::ReduceOp> reduction_names() {
  auto names = by_name<comm::ReduceOp>(std::initializer_list<comm::ReduceOp>{
      comm::ReduceOp::kSum, comm::ReduceOp::kMax, comm::ReduceOp::kMin, comm::ReduceOp::kProduct,
      comm::ReduceOp::kAverage});
  names["avg"] = comm::ReduceOp::kAverage;  // as NCCL and PyTorch call them
  names["prod"] = comm::ReduceOp::kProduct;
  return names;
}

std::vector<BenchRank> places_of(comm::Communicator& comm) {
  struct Place {
    int64_t process;
    char host[64];
    char identity[128];
  };
  Place own{};
  own.process = getpid();
  gethostname(own.host, sizeof(own.host) - 1);
  std::string identity = env::optional(env::kHostIdentity);
  if (identity.empty()) identity = sockets::own_host_identity();
  memcpy(own.identity, identity.data(), std::min(identity.size(), sizeof(own.identity) - 1));
  std::vector<Place> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&own, all.data(), sizeof(Place), DType::kU8, "bench.places")->wait();
  std::vector<BenchRank> ranks;
  for (const Place& place : all) ranks.push_back({place.host, place.identity, place.process});
  return ranks;
}

// `edited`: the file that the text is an edition of, if any.
void write_or_print(const std::string& path, const std::string& text,
                    const std::string& edited = {}) {
  if (path.empty() || path == "-")
    std::fputs(text.c_str(), stdout);
  else
    files::write_text_file(path, text, edited);
}

// Before anything is measured for it.
void check_can_be_written(const std::string& path) {
  if (path.empty() || path == "-") return;
  const bool is_new = !std::filesystem::exists(path);
  if (!is_new && !std::filesystem::is_regular_file(path)) return;  // a pipe has one reader
  const bool opens = std::ofstream(path, std::ios::app).is_open();
  if (opens && is_new) std::filesystem::remove(path);
  if (!opens) throw ConfigError(fmt::format("{} cannot be written", path));
}

// Sizes just beyond which a call goes another way (kOneShotBytes; of an all_gather each rank's
// part), so that a cluster file has what it takes on both sides.
std::vector<int64_t> bends_of(mesh::CollectiveOp op, const SizeRange& range, int ranks) {
  const int64_t more = int64_t{64} * ranks;
  int64_t bend = 0;
  if (op == mesh::CollectiveOp::kAllReduce || op == mesh::CollectiveOp::kReduceScatter)
    bend = mesh::kOneShotBytes + more;
  if (op == mesh::CollectiveOp::kAllGather) bend = mesh::kOneShotBytes * ranks + more;
  if (bend <= int64_t(range.from) || bend >= int64_t(range.to)) return {};
  return {bend};
}

std::vector<int64_t> sizes_of(const CollectivesRequest& request, mesh::CollectiveOp op, int ranks) {
  std::vector<int64_t> sizes = sizes_in(request.sizes);
  const auto add = [&](const std::vector<int64_t>& more) {
    sizes.insert(sizes.end(), more.begin(), more.end());
  };
  if (request.checks) add(sizes_between(request.sizes));
  if (request.calibrates) add(bends_of(op, request.sizes, ranks));
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<BenchCase> cases_of(const CollectivesRequest& request, int ranks) {
  std::vector<BenchCase> cases;
  for (const mesh::CollectiveOp op : request.ops)
    for (const DType dtype : request.dtypes)
      for (const int64_t bytes : sizes_of(request, op, ranks))
        cases.push_back({op, dtype, request.reduction, bytes});
  return cases;
}

// All calls, types and sizes, by rounds. Within one each size comes after the next smaller one: a
// machine that is now quick, now slow, is mostly alike for both. The last round prints the table,
// of the medians.
std::vector<std::vector<BenchResult>> measure_rounds(comm::Communicator& comm,
                                                     const CollectivesRequest& request,
                                                     const std::vector<BenchRank>& ranks) {
  const std::vector<BenchCase> cases = cases_of(request, comm.size());
  int64_t most_bytes = 0;
  for (const BenchCase& what : cases) most_bytes = std::max(most_bytes, what.bytes);
  BenchBuffers buffers(comm, request.options.is_symmetric);
  buffers.hold(most_bytes, most_bytes);
  settle(comm);
  std::vector<std::vector<BenchResult>> rounds(size_t(request.rounds));
  BenchOptions options = request.options;
  for (std::vector<BenchResult>& results : rounds) {
    const bool is_last = &results == &rounds.back();
    options.is_checked = is_last && request.options.is_checked;
    for (size_t at = 0; at < cases.size(); ++at) {
      const bool begins = at == 0 || cases[at].op != cases[at - 1].op;
      if (is_last && comm.rank() == 0 && begins) fmt::print("{}", table_head(cases[at].op, ranks));
      results.push_back(measure(comm, cases[at], options, buffers));
      if (!is_last || comm.rank() != 0) continue;
      fmt::print("{}", table_line(median_of(rounds, at), comm.size()));
      std::fflush(stdout);
    }
  }
  return rounds;
}

std::vector<BenchResult> medians_of(const std::vector<std::vector<BenchResult>>& rounds) {
  std::vector<BenchResult> medians;
  for (size_t at = 0; at < rounds[0].size(); ++at) medians.push_back(median_of(rounds, at));
  return medians;
}

// Sets what the links of each round say beside what was measured in it.
void compare(const std::vector<LinkRound>& rounds, const std::vector<BenchRank>& ranks) {
  const LinkComparison comparison = compare_links(rounds, ranks);
  fmt::print("{}", comparison.text);
  std::fflush(stdout);
  if (comparison.worst_error > kMostLinkError)
    throw std::runtime_error(fmt::format(
        "the predictions for {} have a median error of {:.0f} %, above the limit of {:.0f} %",
        call_name(comparison.worst_op), comparison.worst_error * 100, kMostLinkError * 100));
}

void predict(const CollectivesRequest& request, const std::vector<std::vector<BenchResult>>& rounds,
             const std::vector<BenchRank>& ranks) {
  const ClusterSpec cluster =
      calibration::read_cluster(jobfile::cluster_source(request.predictions));
  std::vector<LinkRound> compared;
  for (const std::vector<BenchResult>& results : rounds) compared.push_back({cluster, results});
  compare(compared, ranks);
}

// Takes the results of the sizes that are held out of the cluster file.
std::vector<BenchResult> take_held(const CollectivesRequest& request,
                                   std::vector<BenchResult>& results) {
  const std::vector<int64_t> sizes = sizes_between(request.sizes);
  const auto first =
      std::stable_partition(results.begin(), results.end(), [&](const BenchResult& result) {
        return std::find(sizes.begin(), sizes.end(), result.measured.bytes) == sizes.end();
      });
  std::vector<BenchResult> held(first, results.end());
  results.erase(first, results.end());
  return held;
}

void calibrate(const CollectivesRequest& request, std::vector<std::vector<BenchResult>> rounds,
               const std::vector<BenchRank>& ranks, const net::NetworkCost& network) {
  const jobfile::JobSource source = jobfile::cluster_source(request.cluster);
  std::vector<LinkRound> held;
  if (request.checks) {
    for (std::vector<BenchResult>& results : rounds) {
      std::vector<BenchResult> between = take_held(request, results);
      const std::string text = with_links(source, results, ranks, network);
      held.push_back({calibration::read_cluster({source.path, text}), std::move(between)});
    }
  }
  write_or_print(request.output, with_links(source, medians_of(rounds), ranks, network),
                 request.cluster);
  if (request.checks) compare(held, ranks);
}

int run_rank(const CollectivesRequest& request, const jobs::JobEnvironment& job) {
  if (request.measures_network && job.hosts == 1)
    throw std::runtime_error(
        "--network-cost needs ranks on at least two hosts; all ranks are on one host");
  const auto comm = jobs::connect(job, [](const std::string& line) { fmt::print("# {}\n", line); });
  const std::vector<BenchRank> ranks = places_of(*comm);
  const std::vector<std::vector<BenchResult>> rounds = measure_rounds(*comm, request, ranks);
  net::NetworkCost network;
  const bool calibrates_network = request.calibrates && hosts_among(ranks) > 1;
  if (request.measures_network || calibrates_network)
    network = measure_network(*comm, ranks, request.options.samples * request.rounds);
  if (comm->rank() != 0) return 0;
  if (request.measures_network) fmt::print("# {}={}\n", env::kFabricCost, net::text_of(network));
  const std::vector<BenchResult> results = medians_of(rounds);
  if (!request.json.empty()) write_or_print(request.json, as_json(results, ranks, request.options));
  if (!request.plot.empty()) write_or_print(request.plot, as_plot(results, comm->size()));
  for (const BenchResult& result : results)
    if (result.wrong() > 0)
      throw std::runtime_error(fmt::format("{} of {}: {} elements have wrong values",
                                           call_name(result.measured.op),
                                           name_of(result.measured.dtype), result.wrong()));
  if (request.calibrates) calibrate(request, rounds, ranks, network);
  if (!request.predictions.empty()) predict(request, rounds, ranks);
  return 0;
}

// A rank says itself what went wrong: its process ends without coming back to main.
int run_rank_or_say(const CollectivesRequest& request, const jobs::JobEnvironment& job) {
  try {
    return run_rank(request, job);
  } catch (const std::exception& error) {
    fmt::print(stderr, "smp-bench: rank {}: {}\n", job.rank, text::printable(error.what()));
    return 1;
  }
}

int run_collectives(CollectivesRequest request) {
  request.options.is_symmetric = !request.is_private;
  // The time model is of calls out of place, and needs no proof that they are right.
  request.options.is_out_of_place_alone |= request.calibrates || !request.predictions.empty();
  request.options.is_checked = !request.options.is_out_of_place_alone;
  if (request.calibrates) {
    request.ops.assign(std::begin(kPointOps), std::end(kPointOps));
    (void)jobfile::cluster_source(request.cluster);  // refused before anything is measured
  }
  if (!request.predictions.empty())
    (void)calibration::read_cluster(jobfile::cluster_source(request.predictions));
  files::refuse_output(request.json, files::FileKind::kJson);
  files::refuse_output(request.plot, files::FileKind::kOther);
  if (request.ranks > 0 || env::optional(env::kRank) == "0")
    for (const std::string& path : {request.json, request.plot, request.output})
      check_can_be_written(path);
  if (request.ranks == 0)
    return run_rank(request, jobs::read_job_environment("smp-bench without -n"));
  return run_forked_ranks(request.ranks, [&](const jobs::JobEnvironment& job) {
    return run_rank_or_say(request, job);
  });
}

using RequestPtr = std::shared_ptr<CollectivesRequest>;

void add_call_options(CLI::App& command, const RequestPtr& request) {
  command.add_option("--ops", request->ops, "collectives to time; default all_reduce")
      ->type_name("OP,...")
      ->delimiter(',')
      ->transform(named_values(op_names()));
  command.add_option("--dtypes", request->dtypes, "data types; default fp32")
      ->type_name("DTYPE,...")
      ->delimiter(',')
      ->transform(named_values(dtype_names()));
  command.add_option("--reduction", request->reduction, "reduction; default sum")
      ->type_name("sum|max|min|product|average")
      ->transform(named_values(reduction_names()));
}

// Sizes, how often, and where the times go.
void add_time_options(CLI::App& command, const RequestPtr& request) {
  add_size_options(command, request->sizes);
  command.add_option("--samples", request->options.samples, "samples per time; default 7")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command
      .add_option_function<int>(
          "--sample-ms",
          [request](int milliseconds) { request->options.sample_s = milliseconds * 1e-3; },
          "duration of a sample, about; default 20")
      ->type_name("N")
      ->check(CLI::Range(1, 10000));
  command
      .add_option("--rounds", request->rounds,
                  "passes over all calls and sizes; a time is the median of the passes; default 1")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command.add_flag("--dirty", request->options.is_dirty, "rewrite the inputs before every call");
  command.add_flag("--out-of-place-alone", request->options.is_out_of_place_alone,
                   "skip in-place calls of collectives that have out-of-place calls, and skip the "
                   "check of results");
  command.add_flag("--private", request->is_private,
                   "allocate buffers in private memory instead of symmetric memory");
  command
      .add_option("--json", request->json,
                  "also write the results as JSON to FILE; - is standard output")
      ->type_name("FILE");
  command.add_option("--plot", request->plot, "draw bus bandwidth over size as SVG in FILE")
      ->type_name("FILE");
}

// Behind those of calls.
void add_model_options(CLI::App& command, const RequestPtr& request) {
  CLI::Option* calibrate =
      command.add_flag("--calibrate", request->calibrates,
                       "write a cluster file whose links are the fp32 calls measured here");
  CLI::Option* cluster =
      command
          .add_option("--cluster", request->cluster,
                      "cluster whose other constants --calibrate copies: a name or a file")
          ->type_name("NAME|FILE");
  calibrate->needs(cluster)
      ->excludes(command.get_option("--ops"))
      ->excludes(command.get_option("--dtypes"));
  command
      .add_flag("--check", request->checks,
                "with --calibrate: also measure sizes in between, in the same rounds, and compare "
                "them with the new cluster file's predictions; fails as --predict does")
      ->needs(calibrate);
  command
      .add_option("-o,--output", request->output,
                  "file for the cluster file; default standard output")
      ->type_name("FILE")
      ->needs(calibrate);
  command
      .add_option("--predict", request->predictions,
                  "print the time model's prediction for this cluster beside each time; fails if "
                  "the median error of a call is above 15 %")
      ->type_name("NAME|FILE")
      ->excludes(calibrate);
}

}  // namespace

void add_collectives_command(CLI::App& app, BenchRun& run) {
  const auto request = std::make_shared<CollectivesRequest>();
  CLI::App* command = app.add_subcommand(
      "collectives", "time collectives between ranks; prints the table of nccl-tests");
  command->footer(kCollectivesExamples);
  command->add_option("-n", request->ranks, "number of ranks to start on this host")
      ->type_name("N")
      ->check(CLI::Range(2, mesh::kMaxRanks));
  add_call_options(*command, request);
  add_time_options(*command, request);
  add_model_options(*command, request);
  command->add_flag(
      "--network-cost", request->measures_network,
      "between hosts: measure the network cost that `smp-bench exchanges` computes with");
  command->callback([request, command, &run] {
    if (request->calibrates && command->count("--factor") == 0) request->sizes.factor = 2;
    check(request->sizes);
    if (request->checks && sizes_between(request->sizes).empty())
      throw CLI::ValidationError(
          "--check", "no size lies between the sizes from -b to -e: raise -f or the range");
    run = [request] { return run_collectives(*request); };
  });
}

}  // namespace smp
