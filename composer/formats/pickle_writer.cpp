#include "composer/formats/pickle_writer.h"

#include <cstdint>
#include <string_view>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/pickle_globals.h"
#include "composer/util/utf8.h"

namespace composer::formats {
namespace {

class PickleWriter {
 public:
  void op(std::string_view code) { out_ += code; }

  void global(std::string_view name) {
    const auto space = name.find(' ');
    out_ += 'c';
    out_ += name.substr(0, space);
    out_ += '\n';
    out_ += name.substr(space + 1);
    out_ += '\n';
  }

  void text(std::string_view text) {
    if (!util::is_utf8(text)) throw ConfigError("the name of a tensor is not UTF-8: ", shown(text));
    out_ += 'X';
    bytes(text.size(), 4);
    out_ += text;
  }

  void integer(std::uint64_t number) {  // below 2^63
    if (number < 256) {
      out_ += 'K';
      bytes(number, 1);
    } else if (number < 1U << 31) {
      out_ += 'J';
      bytes(number, 4);
    } else {
      out_ += "\x8a\x08";
      bytes(number, 8);
    }
  }

  void tuple(const std::vector<std::int64_t>& numbers) {
    op("(");
    for (const std::int64_t number : numbers) integer(static_cast<std::uint64_t>(number));
    op("t");
  }

  std::string take() { return std::move(out_); }

 private:
  void bytes(std::uint64_t number, int count) {
    for (int i = 0; i < count; ++i) out_ += static_cast<char>(number >> 8 * i & 0xFF);
  }

  std::string out_;
};

void write_pickled_tensor(PickleWriter& out, const PickleTensor& tensor, const PickleStorage& storage) {
  const std::string_view own = storage_of_dtype(tensor.dtype);
  out.global(own.empty() ? "torch._utils _rebuild_tensor_v3" : "torch._utils _rebuild_tensor_v2");
  out.op("((");
  out.text("storage");
  out.global(own.empty() ? "torch.storage UntypedStorage" : own);
  out.text(storage.key);
  out.text("cpu");
  out.integer(own.empty() ? storage.elements * pickled_element_bytes(tensor.dtype) : storage.elements);
  out.op("tQ");
  out.integer(tensor.offset);
  out.tuple(tensor.shape);
  out.tuple(tensor.strides);
  out.op("\x89");
  out.global("collections OrderedDict");
  out.op(")R");
  if (own.empty()) out.global(name_of_dtype(tensor.dtype));
  out.op("tR");
}

}  // namespace

std::string make_pickle(const std::vector<std::pair<std::string, PickleTensor>>& tensors,
                        const std::vector<PickleStorage>& storages) {
  PickleWriter out;
  out.op("\x80\x02");
  out.global("collections OrderedDict");
  out.op(")R(");
  for (const auto& [name, tensor] : tensors) {
    out.text(name);
    write_pickled_tensor(out, tensor, storages[tensor.storage]);
  }
  out.op("u.");
  return out.take();
}

}  // namespace composer::formats
