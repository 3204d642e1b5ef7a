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

class RecordBlock;  // kept records of several calls, in one piece of memory

namespace detail {
template <class>
struct ViewOf;
template <class... Kinds>
struct ViewOf<std::variant<Kinds...>> {
  using type = std::variant<std::monostate, const Kinds*...>;
};
}  // namespace detail
// A view of a LogContent: the content must outlive it.
using LogContentView = detail::ViewOf<LogContent>::type;

// What one call of a Logger has logged, and when. It does not change. A destination gets it as a view, which is valid
// during the call; keep() makes it permanent.
class COMPOSER_EXPORT Record {
 public:
  enum class Kind : std::uint8_t { METRICS, HYPERPARAMETERS, TRACES, CONTENT };

  // Views: their arguments must outlive them. `block`: where kept records are collected; null: each is kept separately.
  Record(Kind kind, std::span<const LogEntry> entries, std::int64_t step, const Timestamp& timestamp,
         std::weak_ptr<RecordBlock>* block = nullptr);
  Record(std::string_view key, LogContentView content, std::int64_t step, const Timestamp& timestamp);
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();

  Record with(std::span<const LogEntry> entries) const;  // a view with the same moment

  Kind kind() const { return kind_; }
  std::span<const LogEntry> entries() const { return entries_; }  // for all kinds but CONTENT
  std::string_view key() const { return key_; }                   // for CONTENT
  // For CONTENT: the LogImages, LogTable, LogHistogram or LogFile. Null: it has another type.
  template <class T>
  const T* get() const {
    const T* const* content = std::get_if<const T*>(&content_);
    return content ? *content : nullptr;
  }

  std::int64_t step() const { return step_; }  // number of batches trained so far, unless the caller gave another step
  const Timestamp& timestamp() const { return *timestamp_; }  // the training's
  double wall_time() const;                                   // seconds since 1970

  // A permanent copy of the record; everyone who keeps this call's record gets the same object. Numbers in host memory
  // are read at once; nothing waits for a device. Throws DataError for an entry with a tensor that is not one real
  // number.
  std::shared_ptr<const Record> keep() const;

  // The record with all tensors on the host, and those of entries as numbers. It lives as long as this record. The
  // first call, by any thread, waits for the devices. Throws errors of reading a tensor.
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
  mutable double wall_time_ = 0;  // 0: not requested yet
  std::weak_ptr<RecordBlock>* block_ = nullptr;
  const Kept* own_ = nullptr;                   // the Kept that this record is a part of; null: a view
  mutable std::shared_ptr<const Record> copy_;  // of a view, once kept
};

}  // namespace composer
