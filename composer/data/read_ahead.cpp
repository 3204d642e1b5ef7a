#include "composer/data/read_ahead.h"

#include <utility>

#include "composer/data/one_thread.h"

namespace composer::data::detail {

ReadAhead::ReadAhead(std::int64_t threads, std::int64_t depth, Make make)
    : make_(std::move(make)), slots_(static_cast<std::size_t>(depth)) {
  try {
    for (; threads > 0; --threads) threads_.emplace_back([this] { run(); });
  } catch (...) {
    stop();
    throw;
  }
}

ReadAhead::~ReadAhead() { stop(); }

void ReadAhead::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ++seeks_;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::seek(std::int64_t epoch, std::int64_t batch, std::int64_t end) {
  std::vector<Slot> dropped(slots_.size());
  {
    const std::lock_guard lock(mutex_);
    slots_.swap(dropped);
    epoch_ = epoch;
    to_make_ = to_give_ = batch;
    end_ = end;
    ++seeks_;
  }
  work_.notify_all();
}

Batch ReadAhead::next() {
  Slot taken;
  {
    std::unique_lock lock(mutex_);
    Slot& wanted = slot(to_give_);
    ready_.wait(lock, [&] { return wanted.done; });
    taken = std::exchange(wanted, Slot());
    ++to_give_;
  }
  work_.notify_one();
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(taken.batch);
}

void ReadAhead::run() {
  keep_to_one_thread();
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || has_work(); });
    if (stopping_) return;
    const std::int64_t epoch = epoch_, batch = to_make_++;
    const std::uint64_t seeks = seeks_;
    lock.unlock();
    Slot made = make(epoch, batch, StillWanted(seeks_, seeks));
    lock.lock();
    if (seeks == seeks_) {
      slot(batch) = std::move(made);
      if (batch == to_give_) ready_.notify_one();
    } else {
      lock.unlock();
      made = Slot();
      lock.lock();
    }
  }
}

ReadAhead::Slot ReadAhead::make(std::int64_t epoch, std::int64_t batch, StillWanted wanted) const {
  Slot slot{.done = true, .batch = {}, .error = {}};
  try {
    slot.batch = make_(epoch, batch, wanted);
  } catch (...) {
    slot.error = std::current_exception();
  }
  return slot;
}

}  // namespace composer::data::detail
