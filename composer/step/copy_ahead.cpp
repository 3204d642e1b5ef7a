#include "composer/step/copy_ahead.h"

#include <exception>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "composer/core/error.h"
#include "composer/device/side_stream.h"

namespace composer {
namespace {

constexpr std::size_t kInFlight = 2;  // number of batches whose memory copies may hold

class SideStreamCopy : public CopyInFlight {
 public:
  SideStreamCopy(const Batch& batch, at::Device device, c10::Stream side)
      : guard_(device.type()), device_(device), done_(device.type()), batch_(batch) {
    const StreamScope scope(guard_, side);
    for (auto& [name, tensor] : batch_) {
      if (!tensor.defined() || !tensor.is_cpu()) continue;
      tensor = tensor.to(device_, /*non_blocking=*/true);
      ours_.push_back(tensor);
    }
    done_.record(side);
  }

  Batch receive() override {
    const c10::Stream current = guard_.getStream(device_);
    done_.block(current);
    for (const at::Tensor& tensor : ours_) tensor.record_stream(current);
    ours_.clear();
    return std::move(batch_);
  }
  bool arrived() const override { return done_.query(); }
  void wait() const override { done_.synchronize(); }

 private:
  c10::impl::VirtualGuardImpl guard_;
  at::Device device_;
  c10::Event done_;
  Batch batch_;
  std::vector<at::Tensor> ours_;  // allocated on the side stream
};

// libtorch's count of writes to the tensor and its views; -1: not counted, or not plain host memory.
std::int64_t version(const at::Tensor& tensor) {
  const bool plain = tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_quantized() &&
                     !tensor.is_inference() && !tensor.requires_grad() && !tensor.is_neg() && !tensor.is_conj();
  return plain ? static_cast<std::int64_t>(tensor._version()) : -1;
}

// The row of `source` where `rows` begins, if `rows` consists of consecutive rows of it.
std::optional<std::int64_t> first_row(const at::Tensor& source, const at::Tensor& rows) {
  if (rows.dim() != source.dim() || rows.strides() != source.strides() || rows.scalar_type() != source.scalar_type() ||
      !rows.storage().is_alias_of(source.storage()))
    return std::nullopt;
  const std::int64_t from = rows.storage_offset() - source.storage_offset();
  if (rows.sizes() == source.sizes()) return from == 0 ? std::optional<std::int64_t>(0) : std::nullopt;
  if (rows.sizes().slice(1) != source.sizes().slice(1) || source.stride(0) <= 0) return std::nullopt;
  if (from < 0 || from % source.stride(0) != 0) return std::nullopt;
  const std::int64_t row = from / source.stride(0);
  return row + rows.size(0) <= source.size(0) ? std::optional(row) : std::nullopt;
}

}  // namespace

StartCopy copies_on_side_stream(at::Device device) {
  const SideStream side = side_stream(device);
  if (!side) return [](const Batch&) { return nullptr; };
  return [device, side](const Batch& batch) { return std::make_unique<SideStreamCopy>(batch, device, *side); };
}

CopyAhead::~CopyAhead() {
  try {
    drop();
    release_arrived(0);
  } catch (...) {
    warn(join("copies of batches to the device did not end: ", describe(std::current_exception())));
  }
}

void CopyAhead::put(const Next& next) {
  if (staged_) return;
  Staged staged;
  try {
    staged.batch = next();
  } catch (...) {
    staged.error = std::current_exception();
  }
  if (staged.batch) {
    for (const auto& [name, tensor] : *staged.batch)
      staged.copied.push_back({tensor.defined() ? tensor.detach() : tensor, {}, version(tensor)});
    try {
      staged.copy = start_(*staged.batch);
    } catch (...) {
      staged.copy = nullptr;  // the batch is then copied when it is used, and that copy reports the error
    }
  }
  staged_ = std::move(staged);
}

std::optional<Batch> CopyAhead::take() {
  forget_current();
  Staged staged = std::move(*staged_);
  staged_.reset();
  if (staged.error) std::rethrow_exception(staged.error);
  if (!staged.copy) return std::move(staged.batch);
  const Batch copies = staged.copy->receive();
  for (std::size_t i = 0; const auto& [name, copy] : copies) {
    Copied& known = staged.copied[i++];
    if (known.version == -1) continue;
    known.copy = copy;
    current_.push_back(std::move(known));
  }
  in_flight_.emplace_back(*staged.batch, std::move(staged.copy));
  return std::move(staged.batch);
}

void CopyAhead::forget_current() {
  current_.clear();
  release_arrived(kInFlight);
}

void CopyAhead::drop() {
  current_.clear();
  if (staged_ && staged_->copy) in_flight_.emplace_back(std::move(*staged_->batch), std::move(staged_->copy));
  staged_.reset();
}

// Releases all copies that have arrived. Waits for the oldest others until at most `most` are left.
void CopyAhead::release_arrived(std::size_t most) {
  while (!in_flight_.empty()) {
    const CopyInFlight& oldest = *in_flight_.front().second;
    if (!oldest.arrived()) {
      if (in_flight_.size() <= most) return;
      oldest.wait();
    }
    in_flight_.pop_front();
  }
}

at::Tensor CopyAhead::copy_of(const at::Tensor& tensor) {
  const std::int64_t now = current_.empty() ? -1 : version(tensor);
  if (now == -1) return {};
  for (Copied& known : current_) {
    if (!known.copy.defined() || now != known.version) continue;
    const std::optional<std::int64_t> row = first_row(known.source, tensor);
    if (!row || *row < known.rows_given) continue;
    if (tensor.sizes() == known.source.sizes() && known.rows_given == 0) return std::exchange(known.copy, {});
    known.rows_given = *row + tensor.size(0);
    at::Tensor rows = known.copy.narrow(0, *row, tensor.size(0));
    if (known.rows_given == known.source.size(0)) known.copy.reset();
    return rows;
  }
  return {};
}

}  // namespace composer
