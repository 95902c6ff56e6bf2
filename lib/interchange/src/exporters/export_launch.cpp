#include <fmt/format.h>

#include "exporters/export_view.h"

// Lines that start the ranks. They carry the world alone: the layout is the program's own to read.
namespace smp::exporters {

std::string torchrun_words(const ExportView& view) {
  std::string out =
      fmt::format("torchrun --nnodes {} --nproc-per-node {}", view.hosts, view.processes_per_host);
  return out + (view.hosts > 1 ? " --rdzv-backend c10d --rdzv-endpoint \"$HEAD_HOST:29500\""
                               : " --standalone");
}

std::string write_torchrun(const ExportView& view, Refusals& refusals) {
  refusals.note("replace train.py by your program; this line does not contain the layout");
  if (view.hosts > 1) refusals.note("set HEAD_HOST to the name of the first host, on every host");
  return torchrun_words(view) + " train.py\n";
}

std::string write_mpirun(const ExportView& view, Refusals& refusals) {
  refusals.note("replace train.py by your program; this line does not contain the layout");
  std::string out = fmt::format("mpirun -np {} --map-by ppr:{}:node --bind-to none",
                                view.degrees.world(), view.processes_per_host);
  if (view.hosts > 1) {
    refusals.note("hosts is a file with one host name a line; set HEAD_HOST to the first host");
    out += " --hostfile hosts -x MASTER_ADDR=\"$HEAD_HOST\" -x MASTER_PORT=29500";
  } else {
    out += " -x MASTER_ADDR=localhost -x MASTER_PORT=29500";
  }
  return out + " python train.py\n";
}

}  // namespace smp::exporters
