#include "composer/formats/pt_file.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>
#include <c10/util/strides.h>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/pickle_writer.h"
#include "composer/formats/pt_index.h"
#include "composer/formats/safetensors_header.h"
#include "composer/formats/tensor_bytes.h"
#include "composer/formats/zip_writer.h"
#include "composer/util/new_file.h"

namespace composer::formats {

struct PtFile::Content {
  Content(std::unique_ptr<ByteSource> source, PtOptions options)
      : index(std::move(source), {.allow_unknown = options.allow_unknown}) {
    for (const auto& [name, at] : index.tensors) {
      names.push_back(name);
      by_name.emplace(name, at);
    }
  }

  const c10::Storage& storage(std::uint32_t at) {
    const ZipEntry* entry = index.storages[at];
    const auto known = storages.find(entry);
    if (known != storages.end()) return known->second;
    const at::Tensor bytes = at::empty({static_cast<std::int64_t>(entry->size)}, at::kByte);
    index.zip.read(*entry, bytes.mutable_data_ptr());
    return storages.emplace(entry, bytes.storage()).first->second;
  }

  at::Tensor tensor(std::uint32_t at) {
    const PickleTensor& wanted = index.pickle.tensors[at];
    const c10::Storage& memory = storage(wanted.storage);
    const at::ScalarType type = scalar_type(wanted.dtype);
    const bool check = type == at::kBool && !bools[index.storages[wanted.storage]];
    if (check && !are_bools(static_cast<const char*>(memory.data()), memory.nbytes()))
      throw CheckpointError(index.source->name(), ": a BOOL in the storage ",
                            shown(index.pickle.storages[wanted.storage].key), " is neither 0 nor 1");
    if (check) bools[index.storages[wanted.storage]] = true;
    at::Tensor tensor =
        at::empty({0}, type).set_(memory, static_cast<std::int64_t>(wanted.offset), wanted.shape, wanted.strides);
    if (wanted.conjugate) tensor = tensor.conj_physical();
    return wanted.negative ? tensor.neg() : tensor;
  }

  PtIndex index;
  std::vector<std::string> names;
  std::map<std::string, std::uint32_t, std::less<>> by_name;
  std::map<const ZipEntry*, c10::Storage> storages;  // storages that have been read
  // Whether the storages of bool tensors are valid; checked once for all their tensors.
  std::map<const ZipEntry*, bool> bools;
};

PtFile::PtFile(const std::filesystem::path& path, PtOptions options) : PtFile(open_file(path), options) {}
PtFile::PtFile(std::unique_ptr<ByteSource> source, PtOptions options)
    : content_(std::make_unique<Content>(std::move(source), options)) {}
PtFile::~PtFile() = default;
PtFile::PtFile(PtFile&&) noexcept = default;
PtFile& PtFile::operator=(PtFile&&) noexcept = default;

const std::vector<std::string>& PtFile::names() const { return content_->names; }

bool PtFile::has_key(std::string_view key) const {
  const Pickle& pickle = content_->index.pickle;
  if (pickle.root.kind != PickleValue::Kind::DICT) return false;
  const std::vector<PickleValue>& items = pickle.items[pickle.root.index];
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i].kind == PickleValue::Kind::STRING && pickle.strings[items[i].index] == key) return true;
  return false;
}

std::vector<PtEntry> PtFile::tensors() const {
  std::vector<PtEntry> all;
  for (const auto& [name, at] : content_->index.tensors) {
    const PickleTensor& tensor = content_->index.pickle.tensors[at];
    all.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
    // This was checked when it was read.
    tensor_bytes(tensor.shape, pickled_element_bytes(tensor.dtype), all.back().bytes);
  }
  return all;
}

bool PtFile::checksums() const { return content_->index.zip.has_crcs(); }

at::Tensor PtFile::read(std::string_view name) const {
  const auto found = content_->by_name.find(name);
  if (found == content_->by_name.end())
    throw CheckpointError(content_->index.source->name(), ": has no tensor called ", shown(name));
  return content_->tensor(found->second);
}

NamedTensors PtFile::read_all() const {
  NamedTensors tensors;
  for (const auto& [name, at] : content_->index.tensors) tensors.emplace_back(name, content_->tensor(at));
  return tensors;
}

// A safetensors file begins with the length of its header, whose bytes may equal the first bytes of the other formats;
// JSON follows it.
bool is_pt_file(const ByteSource& file) {
  using namespace std::string_view_literals;
  constexpr std::uint64_t kLooked = 9;
  const std::string first = file.read(0, std::min(file.size(), kLooked));
  if (first.size() < 2) return false;
  if (first.size() == kLooked && (first.back() == '{' || first.back() == ' ') && first.substr(4, 4) == "\0\0\0\0"sv)
    return false;
  return first.starts_with("PK") || (first[0] == '\x80' && first[1] >= 2 && first[1] <= 5);
}

std::vector<std::string> damaged_entries(const ByteSource& file) {
  std::vector<std::string> damage;
  if (file.size() < 2 || file.read(0, 2) != "PK") return damage;  // a bare pickle, which has no CRCs
  const ZipReader zip(file);
  for (const ZipEntry& entry : zip.entries()) try {
      zip.read(entry);
    } catch (const CheckpointError& error) {
      damage.emplace_back(error.what());
    }
  return damage;
}

namespace {

using MemoryOf = std::pair<const void*, at::ScalarType>;

MemoryOf memory_of(const at::Tensor& tensor) { return {tensor.storage().unsafeGetStorageImpl(), tensor.scalar_type()}; }

// The whole storage of a tensor, as elements of the tensor's dtype.
at::Tensor whole_storage(const at::Tensor& tensor) {
  const auto elements = static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return at::empty({0}, tensor.options()).set_(tensor.storage(), 0, {elements}, {1});
}

// The storages that the file will have, and where the tensors lie in them.
struct StorageLayout {
  std::vector<std::pair<std::string, PickleTensor>> entries;
  std::vector<PickleStorage> storages;
  std::vector<at::Tensor> data;  // contents of each storage

  explicit StorageLayout(const NamedTensors& tensors) {
    std::map<MemoryOf, int> users;
    std::set<std::string_view> names;
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.defined() || !tensor.has_storage() || dtype_name(tensor.scalar_type()).empty())
        throw ConfigError("a .pt file cannot hold ", name, ": it is not a dense tensor of a known dtype");
      if (!names.insert(name).second) throw ConfigError("two tensors are called ", name);
      ++users[memory_of(tensor)];
    }
    for (const auto& [name, tensor] : tensors) {
      // Conjugates and negatives are views with a flag; the memory has other values, so they are written separately.
      const bool shared = users[memory_of(tensor)] > 1 && tensor.nbytes() > 0 && !tensor.is_conj() && !tensor.is_neg();
      shared ? add_shared(name, tensor) : add_alone(name, tensor);
    }
  }

 private:
  void add_alone(const std::string& name, const at::Tensor& tensor) {
    const auto strides = c10::contiguous_strides(tensor.sizes());
    entries.push_back({name,
                       {.storage = add_storage(tensor),
                        .dtype = storages.back().dtype,
                        .shape = tensor.sizes().vec(),
                        .strides = {strides.begin(), strides.end()}}});
  }

  void add_shared(const std::string& name, const at::Tensor& tensor) {
    auto known = shared_.find(memory_of(tensor));
    if (known == shared_.end()) known = shared_.emplace(memory_of(tensor), add_storage(whole_storage(tensor))).first;
    entries.push_back({name,
                       {.storage = known->second,
                        .dtype = storages[known->second].dtype,
                        .offset = static_cast<std::uint64_t>(tensor.storage_offset()),
                        .shape = tensor.sizes().vec(),
                        .strides = tensor.strides().vec()}});
  }

  std::uint32_t add_storage(const at::Tensor& tensor) {
    data.push_back(tensor);
    storages.push_back({.key = std::to_string(storages.size()),
                        .dtype = std::string(dtype_name(tensor.scalar_type())),
                        .elements = static_cast<std::uint64_t>(tensor.numel())});
    return static_cast<std::uint32_t>(storages.size() - 1);
  }

  std::map<MemoryOf, std::uint32_t> shared_;
};

}  // namespace

void write_pt(const NamedTensors& tensors, const Sink& sink) {
  const StorageLayout layout(tensors);
  ZipWriter zip(sink);
  zip.entry("archive/data.pkl", make_pickle(layout.entries, layout.storages));
  zip.entry("archive/byteorder", "little");
  for (std::size_t i = 0; i < layout.data.size(); ++i) {
    const at::Tensor host = on_host(layout.data[i]);
    zip.begin("archive/data/" + layout.storages[i].key);
    zip.write(host.const_data_ptr(), host.nbytes());
    zip.end();
  }
  zip.entry("archive/version", "3\n");
  zip.finish();
}

void save_pt(const std::filesystem::path& path, const NamedTensors& tensors) {
  util::NewFile file(path);
  write_pt(tensors, [&](const void* bytes, std::size_t size) { file.write(bytes, size); });
  file.commit();
}

}  // namespace composer::formats
