#include "composer/formats/safetensors.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include <ATen/Parallel.h>

#include "composer/core/error.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/tensor_bytes.h"
#include "composer/formats/unsupported.h"
#include "composer/util/checksum.h"
#include "composer/util/new_file.h"
#include "composer/util/parallel.h"

namespace composer::formats {
namespace {

// Bytes read or written at once, so that the checksum finds them in the cache.
constexpr std::size_t kChecksumPiece = 1 << 18;

// Calls fn(data, size) for each piece.
template <class Bytes, class Fn>
void by_pieces(Bytes* data, std::size_t size, const Fn& fn) {
  for (std::size_t at = 0; at < size; at += kChecksumPiece) fn(data + at, std::min(kChecksumPiece, size - at));
}

std::string safetensors_dtype(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) throw ConfigError("safetensors: ", name, " is undefined");
  if (tensor.layout() != at::kStrided)
    throw ConfigError("safetensors: ", name, " is ", tensor.layout(), "; the format supports dense tensors only");
  const std::string_view dtype = dtype_name(tensor.scalar_type());
  if (element_bytes(dtype) == 0)
    throw ConfigError("safetensors: ", name, " is ", tensor.scalar_type(), "; the format has no such dtype");
  return std::string(dtype);
}

bool has_libtorch_dtype(const TensorEntry& entry) { return element_bytes(entry.dtype) != 0; }

// The order of tensors in a file: larger elements first, so that all are aligned without gaps.
struct TensorLayout {
  std::vector<TensorEntry> entries;
  std::vector<const at::Tensor*> order;
};

TensorLayout layout_of(const NamedTensors& tensors) {
  TensorLayout layout;
  std::vector<std::pair<TensorEntry, const at::Tensor*>> order;
  order.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors)
    order.push_back({{.name = name, .dtype = safetensors_dtype(name, tensor), .shape = tensor.sizes().vec()}, &tensor});
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second->element_size() > b.second->element_size(); });
  std::uint64_t at = 0;
  for (auto& [entry, tensor] : order) {
    entry.begin = at;
    entry.end = at += tensor->nbytes();
    entry.checksum = util::checksum_text(0);  // a placeholder of the same length as the final checksum
    layout.entries.push_back(std::move(entry));
    layout.order.push_back(tensor);
  }
  return layout;
}

// Writes a tensor at `at`, moves `at` to its end, and returns its checksum.
std::string write_summed_tensor(const at::Tensor& tensor, std::uint64_t& at, const PlacedSink& sink) {
  const at::Tensor host = on_host(tensor);
  util::Checksum sum;
  by_pieces(static_cast<const char*>(host.const_data_ptr()), host.nbytes(), [&](const char* piece, std::size_t size) {
    sum.update(piece, size);
    sink(at, piece, size);
    at += size;
  });
  return sum.text();
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, SafetensorsOptions options)
    : SafetensorsFile(open_file(path), options) {}

SafetensorsFile::SafetensorsFile(std::unique_ptr<ByteSource> source, SafetensorsOptions options)
    : source_(std::move(source)), header_(read_safetensors_header(*source_)), by_name_(header_.tensors.size()) {
  if (options.require_checksums && !header_.checksums) throw CheckpointError(source_->name(), ": has no checksums");
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return header_.tensors[a].name < header_.tensors[b].name; });
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::string& SafetensorsFile::name() const { return source_->name(); }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name, [&](std::size_t i, std::string_view wanted) {
    return header_.tensors[i].name < wanted;
  });
  return at == by_name_.end() || header_.tensors[*at].name != name ? nullptr : &header_.tensors[*at];
}

at::Tensor SafetensorsFile::read(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (!entry) throw CheckpointError(source_->name(), ": has no tensor called ", shown(name));
  return read(*entry);
}

at::Tensor SafetensorsFile::read(const TensorEntry& entry) const {
  if (!has_libtorch_dtype(entry))
    throw UnsupportedError(source_->name(), ": ", shown(entry.name), " is ", entry.dtype,
                           ", of which libtorch has no tensors (allow_unknown skips it)");
  at::Tensor tensor = new_tensor(entry.shape, scalar_type(entry.dtype));
  util::Checksum sum;
  std::uint64_t from = header_.data + entry.begin;
  const bool boolean = tensor.scalar_type() == at::kBool;
  by_pieces(static_cast<char*>(tensor.mutable_data_ptr()), tensor.nbytes(), [&](char* piece, std::size_t size) {
    source_->read(from, piece, size);
    if (header_.checksums) sum.update(piece, size);
    if (boolean && !are_bools(piece, size))
      throw CheckpointError(source_->name(), ": ", shown(entry.name), ": BOOL is neither 0 nor 1, in the ", size,
                            " bytes from byte ", from);
    from += size;
  });
  if (header_.checksums && sum.text() != entry.checksum)
    throw CheckpointError(source_->name(), ": ", shown(entry.name), " is damaged: the bytes ",
                          header_.data + entry.begin, " to ", header_.data + entry.end, " do not match their checksum");
  return tensor;
}

NamedTensors SafetensorsFile::read_all(bool allow_unknown) const {
  std::vector<const TensorEntry*> wanted;
  for (const TensorEntry& entry : header_.tensors)
    if (!allow_unknown || has_libtorch_dtype(entry)) wanted.push_back(&entry);
  NamedTensors tensors(wanted.size());
  std::atomic<std::size_t> next = 0;
  parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t i = 0; (i = next++) < tensors.size();) try {
        tensors[i] = {wanted[i]->name, read(*wanted[i])};
      } catch (...) {
        next = tensors.size();
        throw;
      }
  });
  return tensors;
}

std::string write_safetensors(const NamedTensors& tensors, const Metadata& metadata, const PlacedSink& sink) {
  auto [entries, order] = layout_of(tensors);
  std::uint64_t at = make_safetensors_header(entries, metadata).size();
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i].checksum = write_summed_tensor(*order[i], at, sink);
  const std::string header = make_safetensors_header(entries, metadata);
  sink(0, header.data(), header.size());
  return std::string(own_checksum(header));
}

void check_safetensors(const NamedTensors& tensors, const Metadata& metadata) {
  make_safetensors_header(layout_of(tensors).entries, metadata);
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors, const Metadata& metadata) {
  util::NewFile file(path);
  write_safetensors(tensors, metadata, [&](std::uint64_t offset, const void* data, std::size_t size) {
    file.write_at(offset, data, size);
  });
  file.commit();
}

}  // namespace composer::formats
