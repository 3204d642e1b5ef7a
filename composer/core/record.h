#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "composer/core/export.h"
#include "composer/core/log_records.h"
#include "composer/core/time.h"

namespace composer {

class RecordBlock;  // the kept records of several calls, in one piece of memory

namespace detail {
template <class>
struct ViewOf;
template <class... Kinds>
struct ViewOf<std::variant<Kinds...>> {
  using type = std::variant<std::monostate, const Kinds*...>;
};
}  // namespace detail
// One of LogContent, where it is: what it leads to must outlive it.
using LogContentView = detail::ViewOf<LogContent>::type;

// What one call of a Logger has logged, and when. It does not change. A destination gets it as a view, which is valid
// during its call; keep() makes it last.
class COMPOSER_EXPORT Record {
 public:
  enum class Kind : std::uint8_t { METRICS, HYPERPARAMETERS, TRACES, CONTENT };

  // Views: what they are made of must outlive them. `block`: where records are kept together; null: each alone.
  Record(Kind kind, std::span<const LogEntry> entries, std::int64_t step, const Timestamp& timestamp,
         std::weak_ptr<RecordBlock>* block = nullptr);
  Record(std::string_view key, LogContentView content, std::int64_t step, const Timestamp& timestamp);
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();

  Record with(std::span<const LogEntry> entries) const;  // a view of the same moment

  Kind kind() const { return kind_; }
  std::span<const LogEntry> entries() const { return entries_; }  // of all kinds but CONTENT
  std::string_view key() const { return key_; }                   // of CONTENT
  // Of CONTENT: a LogImages, LogTable, LogHistogram or LogFile. Null: it is something else.
  template <class T>
  const T* get() const {
    const T* const* content = std::get_if<const T*>(&content_);
    return content ? *content : nullptr;
  }

  std::int64_t step() const { return step_; }                 // batches trained so far, unless the caller gave another
  const Timestamp& timestamp() const { return *timestamp_; }  // of training
  double wall_time() const;                                   // seconds since 1970

  // The same object for everyone who keeps what one call has logged. Numbers in host memory are read at once; nothing
  // waits for a device. Throws DataError for an entry with a tensor that is not one real number.
  std::shared_ptr<const Record> keep() const;

  // The record with all its tensors on the host, and those of entries as numbers; as long-lived as this one. The first
  // call, by any thread, waits for the devices. Throws what reading a tensor throws.
  const Record& on_host() const;

 private:
  friend class RecordBlock;
  struct Owner;
  struct Alone;
  struct Kept;
  std::shared_ptr<const Record> kept() const;
  Kind kind_;
  std::span<const LogEntry> entries_;
  std::string_view key_;
  LogContentView content_;
  std::int64_t step_;
  const Timestamp* timestamp_;
  mutable double wall_time_ = 0;  // 0: nobody has asked for it
  std::weak_ptr<RecordBlock>* block_ = nullptr;
  const Kept* own_ = nullptr;                   // what a kept record is part of
  mutable std::shared_ptr<const Record> copy_;  // of a view
};

}  // namespace composer
