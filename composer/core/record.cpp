#include "composer/core/record.h"

#include <array>
#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/scalar.h"
#include "composer/core/tensor_streams.h"
#include "composer/util/wall_clock.h"

namespace composer {

// The owner of kept records: holding any of its records keeps it alive.
struct Record::Owner : std::enable_shared_from_this<Owner> {};

// A record with everything that it refers to.
struct Record::Kept {
  enum class Tensors : std::uint8_t { AS_THEY_ARE, READ };

  Kept(const Record& from, const Owner& owned_by, std::pmr::memory_resource* memory, Tensors tensors)
      : owner(owned_by),
        moment(*from.timestamp_),
        text(memory),
        values(memory),
        record(from.kind_, {}, from.step_, moment) {
    record.wall_time_ = from.wall_time();
    record.own_ = this;
    if (from.kind_ == Kind::CONTENT)
      take_content(from, tensors);
    else
      take_entries(from.entries_, tensors);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  void take_content(const Record& from, Tensors tensors) {
    text = from.key_;
    record.key_ = text;
    is_on_host = tensors == Tensors::READ;
    std::visit(
        [this]<class Content>(const Content& there) {
          if constexpr (!std::is_same_v<Content, std::monostate>) keep_content(*there);
        },
        from.content_);
  }

  template <class Content>
  void keep_content(const Content& there) {
    auto here = std::make_shared<const Content>(is_on_host ? copied_to_host(there) : there);
    if (!is_on_host)
      for (const at::Tensor& tensor : tensors_of(*here)) streams.add(tensor);
    record.content_ = here.get();
    content = std::move(here);
  }

  void take_entries(std::span<const LogEntry> entries, Tensors tensors) {
    std::size_t length = 0;
    for (const LogEntry& entry : entries) length += entry.key.size();
    text.reserve(length);  // keeps views of it valid
    values.reserve(entries.size());
    for (const auto& [key, value] : entries) {
      const std::string_view key_here(text.data() + text.size(), key.size());
      text += key;
      const auto* tensor = std::get_if<at::Tensor>(&value);
      if (tensor != nullptr) check_scalar(key, *tensor);
      if (tensor != nullptr && !tensor->is_cpu() && tensors == Tensors::AS_THEY_ARE) {
        streams.add(*tensor);
        values.push_back({key_here, tensor->detach()});
      } else {
        values.push_back({key_here, value_on_host(value)});
      }
    }
    is_on_host = streams.empty();
    record.entries_ = values;
  }

  const Owner& owner;
  const Timestamp moment;
  std::pmr::string text;  // the key, or the keys of the entries one after another
  std::pmr::vector<LogEntry> values;
  std::shared_ptr<const void> content;
  TensorStreams streams;  // the streams that compute the tensors until they are read
  bool is_on_host = false;
  mutable std::once_flag was_read;
  mutable std::unique_ptr<const Kept> host;
  Record record;
};

struct Record::Alone final : Owner {
  explicit Alone(const Record& from) : kept(from, *this, std::pmr::new_delete_resource(), Kept::Tensors::AS_THEY_ARE) {}
  const Kept kept;
};

// Collects several kept records. The training thread allocates it, and a writer thread frees it; doing so for each
// record would make the C library slow for all allocations of the training.
class RecordBlock final : public Record::Owner {
 public:
  RecordBlock() { all_.reserve(kMost); }  // not defaulted, because that would clear the memory
  ~RecordBlock() {
    for (Record::Kept* kept : all_) std::destroy_at(kept);
  }
  RecordBlock(const RecordBlock&) = delete;
  RecordBlock& operator=(const RecordBlock&) = delete;

  bool is_full() const { return all_.size() == kMost; }
  const Record* add(const Record& from) {
    void* const place = resource_.allocate(sizeof(Record::Kept), alignof(Record::Kept));
    return &all_.emplace_back(new (place) Record::Kept(from, *this, &resource_, Record::Kept::Tensors::AS_THEY_ARE))
                ->record;
  }

 private:
  static constexpr std::size_t kMost = 32;
  std::array<std::byte, kMost * 768> memory_;
  std::pmr::monotonic_buffer_resource resource_{memory_.data(), memory_.size()};  // allocates more if this is too small
  std::pmr::vector<Record::Kept*> all_{&resource_};
};

Record::Record(Kind kind, std::span<const LogEntry> entries, std::int64_t step, const Timestamp& timestamp,
               std::weak_ptr<RecordBlock>* block)
    : kind_(kind), entries_(entries), step_(step), timestamp_(&timestamp), block_(block) {}

Record::Record(std::string_view key, LogContentView content, std::int64_t step, const Timestamp& timestamp)
    : kind_(Kind::CONTENT), key_(key), content_(content), step_(step), timestamp_(&timestamp) {}

Record::~Record() = default;

Record Record::with(std::span<const LogEntry> entries) const { return {kind_, entries, step_, *timestamp_, block_}; }

double Record::wall_time() const {
  if (wall_time_ == 0) wall_time_ = seconds_since_1970();
  return wall_time_;
}

std::shared_ptr<const Record> Record::keep() const {
  if (own_ != nullptr) return {own_->owner.shared_from_this(), this};
  if (!copy_) copy_ = kept();
  return copy_;
}

std::shared_ptr<const Record> Record::kept() const {
  if (block_ == nullptr) {
    const auto alone = std::make_shared<const Alone>(*this);
    return {alone, &alone->kept.record};
  }
  std::shared_ptr<RecordBlock> block = block_->lock();
  if (!block || block->is_full()) *block_ = block = std::make_shared<RecordBlock>();
  const Record* const record = block->add(*this);
  return {std::move(block), record};
}

const Record& Record::on_host() const {
  if (own_ == nullptr) return keep()->on_host();
  if (own_->is_on_host) return *this;
  std::call_once(own_->was_read, [this] {
    const at::NoGradGuard no_grad;
    const TensorStreams::Scope on_streams(own_->streams);
    own_->host = std::make_unique<const Kept>(*this, own_->owner, std::pmr::new_delete_resource(), Kept::Tensors::READ);
  });
  return own_->host->record;
}

}  // namespace composer
