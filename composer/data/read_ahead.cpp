#include "composer/data/read_ahead.h"

#include <utility>

#include "composer/data/one_thread.h"

namespace composer::data::detail {

ReadAhead::ReadAhead(std::int64_t threads, std::int64_t depth, std::int64_t batches, Position from, Make make)
    : batches_(batches), make_(std::move(make)), slots_(static_cast<std::size_t>(depth)), from_(from) {
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

ReadAhead::Position ReadAhead::position(std::int64_t number) const {
  const std::int64_t in_first = batches_ - from_.batch;
  if (number < in_first) return {from_.epoch, from_.batch + number};
  const std::int64_t later = number - in_first;
  return {from_.epoch + epochs_on_ * (1 + later / batches_), later % batches_};
}

// Notes whether an epoch that was read to its end is followed by the next one or by itself.
void ReadAhead::note_epoch_order(Position to) {
  if (to_give_ == 0 || to.batch != 0) return;
  const Position last = position(to_give_ - 1);
  if (last.batch + 1 == batches_) epochs_on_ = to.epoch == last.epoch ? 0 : 1;
}

void ReadAhead::seek(Position to) {
  std::vector<Slot> dropped(slots_.size());
  {
    const std::lock_guard lock(mutex_);
    // has_work() is false past the last batch, so a seek to that position must not be ignored.
    if (from_.batch < batches_ && position(to_give_) == to) return;
    note_epoch_order(to);
    slots_.swap(dropped);
    from_ = to;
    to_make_ = to_give_ = 0;
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
    const std::int64_t number = to_make_++;
    const auto [epoch, batch] = position(number);
    const std::uint64_t seeks = seeks_;
    lock.unlock();
    Slot made = make(epoch, batch, StillWanted(seeks_, seeks));
    lock.lock();
    if (seeks == seeks_) {
      slot(number) = std::move(made);
      if (number == to_give_) ready_.notify_one();
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
