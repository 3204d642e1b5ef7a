#include "composer/loggers/background_logger.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/kept_entries.h"
#include "composer/loggers/scalar.h"
#include "composer/loggers/string_map.h"
#include "composer/loggers/tensor_streams.h"
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

at::Tensor on_host(const at::Tensor& tensor) { return tensor.to(at::kCPU).contiguous(); }

struct ReadContent {
  void operator()(std::monostate) const {}
  void operator()(const LogFile&) const {}
  void operator()(LogImages& images) const {
    images.images = on_host(images.images);
    for (LogMask& mask : images.masks) mask.classes = on_host(mask.classes);
  }
  void operator()(LogTable& table) const {
    for (std::vector<LogValue>& row : table.rows)
      for (LogValue& value : row) value = value_on_host(value);
  }
  void operator()(LogHistogram& histogram) const {
    histogram.counts = on_host(histogram.counts.to(at::kDouble));
    histogram.edges = on_host(histogram.edges.to(at::kDouble));
    if (histogram.left_out.defined()) histogram.left_out = on_host(histogram.left_out);
  }
};

void check_background(const std::string& name, const BackgroundOptions& options) {
  const auto is_in_range = [](Seconds time, double least) { return time.count() >= least && time.count() <= 86'400; };
  if (options.capacity < 1) throw ConfigError(name, ": capacity must be >= 1, got ", options.capacity);
  if (!is_in_range(options.flush_interval, 0))
    throw ConfigError(name, ": flush_interval must be from 0 to 86400 seconds, got ", options.flush_interval.count());
  if (!is_in_range(options.flush_timeout, 0))
    throw ConfigError(name, ": flush_timeout must be from 0 to 86400 seconds, got ", options.flush_timeout.count());
}

}  // namespace

RecordWriter::~RecordWriter() = default;
std::string_view RecordWriter::noun() const { return "records"; }
std::string RecordWriter::encoded(std::string_view key) const { return std::string(key); }
bool RecordWriter::takes(LogRecord::Kind kind) const {
  return kind == LogRecord::Kind::METRICS || kind == LogRecord::Kind::HYPERPARAMETERS;
}

void RecordWriter::lose(std::int64_t count, const std::string& reason) {
  const std::string text = reason.starts_with(name_) ? reason : join(name_, ": ", reason);
  if (!drops_) throw Error(text);
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = text;
  lost_ += count;
  failed_ = true;
}

// A record on its way to the background thread.
struct BackgroundLogger::Message {
  struct Content {
    std::string key;
    decltype(LogRecord::content) value;
    TensorStreams streams;  // compute the tensors until they are read
  };
  LogRecord::Kind kind = LogRecord::Kind::METRICS;
  std::int64_t step = 0;
  std::shared_ptr<KeptEntries> entries = nullptr;  // of other kinds than METRICS, HYPERPARAMETERS and TRACES: none
  std::unique_ptr<Content> content = nullptr;      // of these
};

// What belongs to one opening of the logger.
struct BackgroundLogger::Channel {
  // Of the background thread: what it makes of messages.
  struct Received {
    static constexpr std::size_t kAtOnce = 512;
    std::vector<LogRecord> records = std::vector<LogRecord>(kAtOnce);  // whose memory is used again
    StringMap<LogKey> keys;
    LogKey *first = nullptr, *last = nullptr;
  };

  Channel(std::shared_ptr<RecordWriter> made, const BackgroundOptions& options)
      : writer(std::move(made)),
        timeout(options.flush_timeout),
        queue([writer = writer, received = std::make_shared<Received>()](
                  std::span<Message> messages) { write(*writer, *received, messages); },
              {.delay = options.flush_interval,
               .capacity = static_cast<std::size_t>(options.capacity),
               .when_full = full_queue(options.when_full)},
              [writer = writer] {
                if (writer->begun_) finish(*writer);
              }) {}
  ~Channel() { queue.end(limit()); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  static void write(RecordWriter& writer, Received& received, std::span<Message> messages) {
    for (; messages.size() > Received::kAtOnce; messages = messages.subspan(Received::kAtOnce))
      write_at_once(writer, received, messages.first(Received::kAtOnce));
    write_at_once(writer, received, messages);
  }

  static void write_at_once(RecordWriter& writer, Received& received, std::span<Message> messages) {
    std::size_t readable = 0;
    for (Message& message : messages)
      attempt(
          writer,
          [&] {
            LogRecord& record = received.records[readable];
            read(writer, received, message, record);
            look_at_histogram(writer, record);
            ++readable;
          },
          1);
    const std::span<LogRecord> records(received.records.data(), readable);
    if (readable > 0)
      attempt(
          writer, [&] { writer.write(records); }, static_cast<std::int64_t>(readable));
    for (LogRecord& record : records) {
      record.fields.clear();
      record.content = std::monostate();
    }
  }

  static void read(const RecordWriter& writer, Received& received, Message& message, LogRecord& record) {
    KeptEntries& entries = *message.entries;
    record.kind = message.kind;
    record.step = message.step;
    record.epoch = entries.epoch;
    record.batch = entries.batch;
    record.time = entries.time;
    record.wall_time = entries.wall_time;
    record.fields.clear();
    record.content = std::monostate();  // of a record that could not be read
    for (const auto& [key, value] : entries.read()) record.fields.push_back({&interned(writer, received, key), value});
    record.key = nullptr;
    if (!message.content) return;
    Message::Content& content = *message.content;
    const at::NoGradGuard no_grad;
    const TensorStreams::Scope on_streams(content.streams);
    std::visit(ReadContent{}, content.value);
    record.key = &interned(writer, received, content.key);
    record.content = std::move(content.value);
  }

  static void look_at_histogram(RecordWriter& writer, const LogRecord& record) {
    const auto* histogram = std::get_if<LogHistogram>(&record.content);
    if (histogram == nullptr || !histogram->left_out.defined() || writer.left_out_) return;
    const auto count = histogram->left_out.item<std::int64_t>();
    if (count == 0) return;
    writer.partial_ = join(record.key->name, ", batch ", record.step, ": ", count);
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
    } catch (...) {  // the library's, libtorch's, or of the user's code
      if (!writer.drops_) throw;
      writer.lose(records, describe(std::current_exception()));
    }
  }

  // The calls of a batch log the same keys in the same order, so most are found without a look into the map.
  static LogKey& interned(const RecordWriter& writer, Received& received, std::string_view key) {
    LogKey*& next = received.last == nullptr ? received.first : received.last->next;
    if (next == nullptr || next->name != key) {
      LogKey& known = received.keys[key];
      if (known.name.empty()) {
        known.encoded = writer.encoded(key);
        known.name = key;
      }
      next = &known;
    }
    received.last = next;
    return *next;
  }

  // Whatever it throws was then told to the user, and close() need not repeat it.
  template <class Call>
  void telling(const Call& call) {
    try {
      call();
    } catch (...) {
      told = true;
      throw;
    }
  }

  // A writer that hangs is waited for once.
  Seconds limit() const { return hangs ? Seconds(0) : timeout; }

  std::int64_t dropped() const { return dropped_before + static_cast<std::int64_t>(queue.dropped()); }

  const std::shared_ptr<RecordWriter> writer;
  const Seconds timeout;
  std::int64_t dropped_before = 0;  // by the process that wrote the checkpoint
  std::vector<Message> held;
  bool told = false, warned = false, warned_full = false, warned_left_out = false, hangs = false;
  util::BackgroundQueue<Message> queue;
};

BackgroundLogger::BackgroundLogger(std::string name, const BackgroundOptions& options)
    : name_(std::move(name)), options_(options) {
  check_background(name_, options_);
}
BackgroundLogger::~BackgroundLogger() = default;
BackgroundLogger::BackgroundLogger(BackgroundLogger&&) noexcept = default;

RecordWriter& BackgroundLogger::open(const State& state) {
  if (!channel_) {
    holding_ = false;
    std::shared_ptr<RecordWriter> made = make_writer(state);
    made->drops_ = options_.on_failure == LogFailure::CONTINUE;
    made->name_ = name_;
    made->begun_ = !holding_;
    channel_ = std::make_unique<Channel>(std::move(made), options_);
  }
  return *channel_->writer;
}

void BackgroundLogger::drop_held() { channel_->held.clear(); }
void BackgroundLogger::hold() { holding_ = true; }

void BackgroundLogger::open_held(const std::function<void()>& open) {
  channel_->telling(open);
  channel_->told = holding_ = false;
  channel_->writer->begun_ = true;
  for (Message& message : std::exchange(channel_->held, {})) send(std::move(message));
}

void BackgroundLogger::send(Message&& message) {
  Channel& channel = *channel_;
  if (holding_) return channel.held.push_back(std::move(message));
  channel.telling([&] { channel.queue.send(std::move(message)); });
  warn_once();
}

// By the thread that trains: warnings of others are not seen by who handles the trainer's.
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
  // Without the lock, which the background thread may wait for: whoever handles warnings may flush the loggers.
  warn(join(reason, "; training continues, and ", channel.writer->noun(), " are dropped until writing works again"));
}

void BackgroundLogger::log_entries(LogRecord::Kind kind, std::span<const LogEntry> entries, std::int64_t step,
                                   const State& state) {
  if (is_closed()) return;
  if (open(state).takes(kind)) send({.kind = kind, .step = step, .entries = KeptEntries::of(entries, state)});
}

void BackgroundLogger::log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) {
  log_entries(LogRecord::Kind::METRICS, metrics, step, state);
}

void BackgroundLogger::log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) {
  log_entries(LogRecord::Kind::HYPERPARAMETERS, hyperparameters, state.timestamp.batch, state);
}

void BackgroundLogger::log_traces(std::span<const LogEntry> traces, const State& state) {
  log_entries(LogRecord::Kind::TRACES, traces, state.timestamp.batch, state);
}

template <class Content>
void BackgroundLogger::log_content(LogRecord::Kind kind, std::string_view key, const Content& content,
                                   std::int64_t step, const State& state) {
  if (is_closed() || !open(state).takes(kind)) return;
  TensorStreams streams;
  streams.add(content);
  send({.kind = kind,
        .step = step,
        .entries = std::make_shared<KeptEntries>(std::span<const LogEntry>(), state),
        .content = std::make_unique<Message::Content>(std::string(key), content, std::move(streams))});
}

void BackgroundLogger::log_images(std::string_view key, const LogImages& images, std::int64_t step,
                                  const State& state) {
  log_content(LogRecord::Kind::IMAGES, key, images, step, state);
}

void BackgroundLogger::log_table(std::string_view key, const LogTable& table, std::int64_t step, const State& state) {
  log_content(LogRecord::Kind::TABLE, key, table, step, state);
}

void BackgroundLogger::log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step,
                                     const State& state) {
  log_content(LogRecord::Kind::HISTOGRAM, key, histogram, step, state);
}

void BackgroundLogger::upload_file(const LogFile& file, const State& state) {
  log_content(LogRecord::Kind::FILE, file.name, file, state.timestamp.batch, state);
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
  if (!channel_ || (visit.is_loading() && !visit.has("lost"))) return;  // of an older version
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
  constexpr Seconds kPause{1};  // epochs may be short, and to wake a thread costs more than to write many records
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
