#pragma once

#include <chrono>
#include <memory>

#include "arena.h"
#include "engine.h"
#include "job.h"
#include "smp/comm/communicator.h"

namespace smp::shm {

// What watches over the other ranks while a seat is held, e.g. the sockets between processes.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
};

// What one rank holds of a job; shared by its communicators, given back with the last of them.
struct Seat {
  Seat(std::shared_ptr<Job> shared_job, int rank, std::chrono::milliseconds timeout)
      : job(std::move(shared_job)),
        arena(std::make_shared<Arena>(job, rank)),
        engine(*job, rank, timeout) {}
  ~Seat() { job->board(engine.rank()).gone.store(1); }  // before the sockets close

  std::shared_ptr<Job> job;
  std::shared_ptr<Arena> arena;
  Engine engine;
  std::unique_ptr<PeerWatch> watch;
};

// The communicator of all ranks of the job.
std::unique_ptr<Communicator> make_world(std::shared_ptr<Seat> seat);

}  // namespace smp::shm
