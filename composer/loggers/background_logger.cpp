#include "composer/loggers/background_logger.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/background_option.h"
#include "composer/util/background_queue.h"

namespace composer::loggers {
namespace {

util::FullQueue full_queue(WhenFull when_full) {
  switch (when_full) {
    case WhenFull::DROP_NEWEST:
      return util::FullQueue::DROP_NEWEST;
    case WhenFull::DROP_OLDEST:
      return util::FullQueue::DROP_OLDEST;
    case WhenFull::WAIT:
      break;
  }
  return util::FullQueue::WAIT;
}

std::vector<Option<BackgroundOptions>> background_options() {
  using O = BackgroundOptions;
  return all_options(option("capacity", &O::capacity).at_least(1), when_full_option(&O::when_full),
                     flush_interval_option(&O::flush_interval),
                     option("flush_timeout", &O::flush_timeout).from_to(0, 86'400, "seconds"),
                     on_failure_option(&O::on_failure));
}

}  // namespace

RecordWriter::~RecordWriter() = default;
std::string_view RecordWriter::noun() const { return "records"; }
bool RecordWriter::takes(const Record& record) const {
  return record.kind() == Record::Kind::METRICS || record.kind() == Record::Kind::HYPERPARAMETERS;
}

void RecordWriter::lose(std::int64_t count, const std::string& reason) {
  const std::string text = reason.starts_with(name_) ? reason : join(name_, ": ", reason);
  if (!drops_) throw Error(text);
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = text;
  lost_ += count;
  failed_ = true;
}

// The state between two calls of INIT and close().
struct BackgroundLogger::Channel {
  using Message = std::shared_ptr<const Record>;

  Channel(std::shared_ptr<RecordWriter> made, const BackgroundOptions& options)
      : writer(std::move(made)),
        timeout(options.flush_timeout),
        queue([writer = writer](std::span<Message> messages) { write(*writer, messages); },
              {.delay = options.flush_interval,
               .capacity = static_cast<std::size_t>(options.capacity),
               .when_full = full_queue(options.when_full)},
              [writer = writer] {
                if (writer->begun_) finish(*writer);
              }) {}
  ~Channel() { queue.end(limit()); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  static void write(RecordWriter& writer, std::span<Message> messages) {
    constexpr std::size_t kAtOnce = 512;
    for (; messages.size() > kAtOnce; messages = messages.subspan(kAtOnce))
      write_at_once(writer, messages.first(kAtOnce));
    write_at_once(writer, messages);
  }

  static void write_at_once(RecordWriter& writer, std::span<Message> messages) {
    std::vector<const Record*> records;
    records.reserve(messages.size());
    for (const Message& message : messages)
      attempt(
          writer,
          [&] {
            const Record& record = message->on_host();
            look_at_histogram(writer, record);
            records.push_back(&record);
          },
          1);
    if (!records.empty())
      attempt(
          writer, [&] { writer.write(records); }, static_cast<std::int64_t>(records.size()));
  }

  static void look_at_histogram(RecordWriter& writer, const Record& record) {
    const auto* histogram = record.get<LogHistogram>();
    if (histogram == nullptr || !histogram->left_out.defined() || writer.left_out_) return;
    const auto count = histogram->left_out.item<std::int64_t>();
    if (count == 0) return;
    writer.partial_ = join(record.key(), ", batch ", record.step(), ": ", count);
    writer.left_out_ = true;
  }

  static void finish(RecordWriter& writer) {
    try {
      attempt(
          writer, [&] { writer.close(); }, 0);
    } catch (...) {
      const std::lock_guard lock(writer.mutex_);
      writer.error_ = std::current_exception();
    }
  }

  template <class Call>
  static void attempt(RecordWriter& writer, const Call& call, std::int64_t records) {
    try {
      call();
    } catch (...) {  // an error of this library, of libtorch, or of the user's code
      if (!writer.drops_) throw;
      writer.lose(records, describe(std::current_exception()));
    }
  }

  // Calls the function and notes whether it throws: the user has then seen the error, and close() need not repeat it.
  template <class Call>
  void telling(const Call& call) {
    try {
      call();
    } catch (...) {
      told = true;
      throw;
    }
  }

  // If the writer hangs, it is not waited for again.
  Seconds limit() const { return hangs ? Seconds(0) : timeout; }

  std::int64_t dropped() const { return dropped_before + static_cast<std::int64_t>(queue.dropped()); }

  const std::shared_ptr<RecordWriter> writer;
  const Seconds timeout;
  std::int64_t dropped_before = 0;  // dropped by the process that wrote the checkpoint
  std::vector<Message> held;
  bool told = false, warned = false, warned_full = false, warned_left_out = false, hangs = false;
  util::BackgroundQueue<Message> queue;
};

BackgroundLogger::BackgroundLogger(std::string name, const BackgroundOptions& options)
    : name_(std::move(name)), options_(checked(name_.c_str(), options, background_options())) {}
BackgroundLogger::~BackgroundLogger() = default;
BackgroundLogger::BackgroundLogger(BackgroundLogger&&) noexcept = default;

RecordWriter& BackgroundLogger::open(const State& state) {
  if (!channel_) {
    holding_ = false;
    std::shared_ptr<RecordWriter> made = make_writer(state);
    if (!made) throw ConfigError(name_, ": make_writer() has returned no writer");
    made->drops_ = options_.on_failure == LogFailure::CONTINUE;
    made->name_ = name_;
    made->begun_ = !holding_;
    channel_ = std::make_unique<Channel>(std::move(made), options_);
  }
  return *channel_->writer;
}

void BackgroundLogger::drop_held() { channel_->held.clear(); }
void BackgroundLogger::hold() { holding_ = true; }

bool BackgroundLogger::goes_on_at(const StateVisitor& loaded) const { return is_holding() && loaded.is_of_this_run(); }

void BackgroundLogger::open_held(const std::function<void()>& open) {
  channel_->telling(open);
  channel_->told = holding_ = false;
  channel_->writer->begun_ = true;
  for (auto& record : std::exchange(channel_->held, {})) send(std::move(record));
}

void BackgroundLogger::send(std::shared_ptr<const Record> record) {
  Channel& channel = *channel_;
  if (holding_) return channel.held.push_back(std::move(record));
  channel.telling([&] { channel.queue.send(std::move(record)); });
  warn_once();
}

// Called by the thread that trains: warnings of other threads do not reach the program's handler for the trainer's
// warnings.
void BackgroundLogger::warn_once() {
  Channel& channel = *channel_;
  if (channel.queue.dropped() > 0 && !std::exchange(channel.warned_full, true))
    warn(join(name_, ": ", channel.writer->where(), " is written more slowly than records arrive; more than ",
              options_.capacity, " wait, and some are dropped"));
  if (channel.writer->left_out_ && !std::exchange(channel.warned_left_out, true))
    warn(join(name_, ": ", channel.writer->partial_,
              " values are infinite or not a number, and are left out of the histogram; later ones are not reported"));
  if (!channel.writer->failed_ || std::exchange(channel.warned, true)) return;
  const std::string reason = [&] {
    const std::lock_guard lock(channel.writer->mutex_);
    return channel.writer->reason_;
  }();
  // The lock is not held here, because the background thread may wait for it: a handler of warnings may flush the
  // loggers.
  warn(join(reason, "; training continues, and ", channel.writer->noun(), " are dropped until writing works again"));
}

void BackgroundLogger::log_record(const Record& record, const State& state) {
  if (!is_closed() && open(state).takes(record)) send(record.keep());
}

void BackgroundLogger::flush() {
  if (!channel_ || holding_) return;
  Channel& channel = *channel_;
  bool written = true;
  channel.telling([&] { written = channel.queue.sync(channel.limit()); });
  if (!written && !channel.hangs)
    warn(join(name_, ": ", channel.writer->where(), " could not be written within ", channel.timeout.count(),
              " s; training continues"));
  channel.hangs = !written;
  if (written)
    channel.telling([&] {
      Channel::attempt(
          *channel.writer, [&] { channel.writer->flush(); }, 0);
    });
  warn_once();
}

void BackgroundLogger::sync() {
  if (!channel_ || holding_) return;
  Channel& channel = *channel_;
  channel.telling([&] { channel.queue.sync(); });
  Channel::attempt(
      *channel.writer, [&] { channel.writer->sync(); }, 0);
  warn_once();
}

void BackgroundLogger::visit_missing(StateVisitor& visit) {
  if (!channel_ || (visit.is_loading() && !visit.has("lost"))) return;  // the checkpoint is from an older version
  Channel& channel = *channel_;
  std::int64_t dropped = channel.dropped(), lost = 0;
  {
    const std::lock_guard lock(channel.writer->mutex_);
    lost = channel.writer->lost_;
  }
  visit("dropped", dropped);
  visit("lost", lost);
  if (!visit.is_loading()) return;
  channel.dropped_before = std::max<std::int64_t>(dropped, 0);
  const std::lock_guard lock(channel.writer->mutex_);
  channel.writer->lost_ = std::max<std::int64_t>(lost, 0);
}

void BackgroundLogger::forget_missing() {
  channel_->dropped_before = 0;
  const std::lock_guard lock(channel_->writer->mutex_);
  channel_->writer->lost_ = 0;
}

bool BackgroundLogger::is_closed() {
  if (closed_ && !std::exchange(warned_closed_, true))
    warn(join(name_, ": is closed, so what is logged from here on is lost"));
  return closed_;
}

void BackgroundLogger::init(const State& state, Logger&) {
  closed_ = warned_closed_ = false;
  open(state);
}

void BackgroundLogger::epoch_end(const State&, Logger&) {
  constexpr Seconds kPause{1};  // epochs may be short, and waking a thread costs more than writing many records
  if (channel_) channel_->queue.hurry(kPause);
}

void BackgroundLogger::fit_end(const State&, Logger&) { flush(); }

void BackgroundLogger::close(const State&, Logger&) {
  closed_ = true;
  if (!channel_) return;
  const auto leave = [this](const std::string& text) {
    channel_.reset();
    if (!text.empty()) warn(text);
  };
  Channel& channel = *channel_;
  const std::string where = channel.writer->where();
  if (holding_ && !channel.held.empty() && !channel.told)
    return leave(join(name_, ": ", channel.held.size(), " records are not written to ", where,
                      ", the log of a run that goes on, because no fit has begun; to log evaluations alone, choose ",
                      "another path"));
  if (holding_ || channel.told) return leave("");
  try {
    flush();
  } catch (...) {
    channel_.reset();
    throw;
  }
  const bool ended = channel.queue.end(channel.limit());
  warn_once();
  const std::shared_ptr<RecordWriter> writer = channel.writer;
  const std::uint64_t abandoned = channel.queue.abandoned();
  const std::int64_t dropped = channel.dropped();
  channel_.reset();
  if (!ended)
    warn(join(name_, ": ", abandoned, ' ', writer->noun(), " are not yet written to ", where, " and may be missing"));
  if (dropped > 0)
    warn(join(name_, ": ", dropped, ' ', writer->noun(), " were dropped because they arrived faster than ", where,
              " could be written"));
  const std::lock_guard lock(writer->mutex_);
  if (writer->lost_ > 0)
    warn(join(name_, ": ", writer->lost_, ' ', writer->noun(), " could not be written and are missing in ", where));
  if (writer->error_) std::rethrow_exception(writer->error_);
}

}  // namespace composer::loggers
