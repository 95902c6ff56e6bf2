#include "backend.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

namespace smp::pytorch {

using std::chrono::milliseconds;

namespace {

constexpr const char* kShutDown = "smp: the process group is shut down";

// The time-out of one call, where it has one of its own.
class CallTimeout {
 public:
  CallTimeout(comm::Communicator& communicator, milliseconds own, milliseconds general)
      : communicator_(own > kNoTimeout ? &communicator : nullptr), general_(general) {
    if (communicator_ != nullptr) communicator_->set_timeout(own);
  }
  CallTimeout(const CallTimeout&) = delete;
  ~CallTimeout() {
    if (communicator_ != nullptr) communicator_->set_timeout(general_);
  }

 private:
  comm::Communicator* const communicator_;
  const milliseconds general_;
};

c10d::ErrorType error_of(const comm::Communicator& communicator) {
  const auto error = communicator.error();
  if (!error) return c10d::ErrorType::SUCCESS;
  return error->kind == comm::CommError::Kind::kTimeout ? c10d::ErrorType::TIMEOUT
                                                        : c10d::ErrorType::COMM_ERROR;
}

}  // namespace

SmpBackend::SmpBackend(std::unique_ptr<comm::Communicator> communicator, std::string place,
                       milliseconds timeout, Outside outside_python)
    : Backend(communicator->rank(), communicator->size()),
      place_(std::move(place)),
      connection_(new Connection, waiting::DeleteInCreator()),
      completion_(new Completion),
      outside_python_(std::move(outside_python)),
      timeout_(timeout) {
  connection_->communicator = std::move(communicator);
  connection_->place = place_;
}

SmpBackend::~SmpBackend() { shutdown(); }

void SmpBackend::check_home() const {
  try {
    home_.check(getRank());
  } catch (const comm::CommError& error) {
    throw_torch_error(error.kind, place_, error.what());
  }
}

SmpBackend::TorchWorkPtr SmpBackend::start(c10d::OpType type, const char* title,
                                           milliseconds timeout, Tensors outputs,
                                           const at::Tensor& like, const Body& body) {
  check_home();
  std::unique_lock lock(mutex_);
  TORCH_CHECK(connection_, kShutDown);
  Steps steps;
  {
    comm::Communicator& calls = connection_->calls_for(like);
    const CallTimeout own(calls, timeout, timeout_);
    body(calls, steps);
  }
  if (like.defined() && connection_->on_device && connection_->on_device->device().holds(like))
    steps.device = &connection_->on_device->device();
  if (!c10d::isP2POp(type)) ++sequence_;
  const uint64_t number = ++number_;
  const auto work = c10::make_intrusive<TorchWork>(connection_, *completion_, number, type, title,
                                                   std::move(steps), std::move(outputs));
  const std::shared_ptr<Connection> connection = connection_;
  bool alone = false;
  {
    std::lock_guard guard(connection->mutex);
    connection->under_way.emplace(number, work);
    alone = connection->under_way.size() == 1;
  }
  if (coalescing_) {
    while (!coalesced_.empty() && coalesced_.front()->is_well()) coalesced_.pop_front();
    coalesced_.push_back(work);
  }
  lock.unlock();
  if (!alone) is_busy(*connection, 2);  // more than the one that has come
  return work;
}

bool SmpBackend::is_busy(Connection& connection, int most) {
  for (int i = 0; i < most; ++i) {
    c10::intrusive_ptr<TorchWork> work;
    {
      std::lock_guard guard(connection.mutex);
      auto& works = connection.under_way;
      if (works.empty()) return false;
      auto next = works.upper_bound(connection.looked_at);
      if (next == works.end()) next = works.begin();
      connection.looked_at = next->first;
      work = next->second;
    }
    work->settle_now();
  }
  std::lock_guard guard(connection.mutex);
  return !connection.under_way.empty();
}

void SmpBackend::startCoalescing() {
  check_home();
  std::lock_guard guard(mutex_);
  coalesced_.clear();  // of a block that an exception has left
  coalescing_ = true;
}

SmpBackend::TorchWorkPtr SmpBackend::endCoalescing() {
  check_home();
  std::deque<c10::intrusive_ptr<TorchWork>> works;
  {
    std::lock_guard guard(mutex_);
    works.swap(coalesced_);
    coalescing_ = false;
  }
  return start(c10d::OpType::COALESCED, "smp:coalesced", c10d::kUnsetTimeout, {}, {},
               [&](comm::Communicator&, Steps& steps) {
                 for (auto& work : works)
                   steps.parts.push_back(std::make_shared<Coalesced>(std::move(work)));
               });
}

void SmpBackend::setTimeout(milliseconds timeout) {
  check_home();
  std::lock_guard guard(mutex_);
  timeout_ = timeout;
  if (connection_) connection_->calls_for({}).set_timeout(timeout);
}

at::Tensor SmpBackend::allocateTensor(long size, at::TensorOptions options) {
  check_home();
  TORCH_CHECK(options.device().is_cpu(),
              "smp: allocate_tensor makes tensors on the CPU only; requested: ", options.device());
  std::lock_guard guard(mutex_);
  TORCH_CHECK(connection_, kShutDown);
  const int64_t bytes = size * int64_t(options.dtype().itemsize());
  const auto memory = connection_->communicator->allocate_symmetric(std::max<int64_t>(bytes, 1));
  return at::from_blob(
      memory.get(), {size}, [memory](void*) {}, options);
}

void SmpBackend::abort() {
  check_home();
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard guard(mutex_);
    connection = connection_;
  }
  if (connection) connection->communicator->abort("torch aborted the process group");
}

c10d::ErrorType SmpBackend::getError() {
  check_home();
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard guard(mutex_);
    connection = connection_;
    if (!connection) return last_error_;
  }
  return error_of(*connection->communicator);
}

void SmpBackend::shutdown() {
  if (!home_.is_here()) return;
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard guard(mutex_);
    if (connection_) last_error_ = error_of(*connection_->communicator);
    connection = std::move(connection_);
  }
  if (!connection) return;
  outside_python_([&] {
    for (;;) {
      c10::intrusive_ptr<TorchWork> work;
      {
        std::lock_guard guard(connection->mutex);
        if (connection->under_way.empty()) break;
        work = connection->under_way.begin()->second;
      }
      work->settle();
    }
    {
      std::lock_guard guard(mutex_);
      last_error_ = error_of(*connection->communicator);
    }
    completion_->stop();
    connection.reset();
  });
}

comm::Survivors SmpBackend::shrink(milliseconds limit) {
  check_home();
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard guard(mutex_);
    connection = connection_;
  }
  TORCH_CHECK(connection, kShutDown);
  try {
    return connection->communicator->shrink(limit);
  } catch (const comm::CommError& error) {
    throw_torch_error(error.kind, connection->place, error.what());
  }
}

void SmpBackend::leave() {
  if (!home_.is_here()) return;
  std::shared_ptr<Connection> connection;
  size_t calls = 0;
  {
    std::lock_guard guard(mutex_);
    connection = connection_;
    if (!connection) return;
    std::lock_guard under_way(connection->mutex);
    calls = connection->under_way.size();
  }
  if (is_busy(*connection, int(calls)))
    connection->communicator->abort("the program ended while calls were in progress");
  connection.reset();
  shutdown();
}

}  // namespace smp::pytorch
