#include "composer/formats/pt_index.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/unsupported.h"

namespace composer::formats {
namespace {

constexpr int kDeepest = 64;                     // largest depth of nested dicts, and of tuples in a key
constexpr std::uint64_t kMostPickle = 64 << 20;  // bytes; the limit of read_pickle()
constexpr std::uint64_t kSmallest = 64 << 10;    // a pickle of this size may be deflated by any factor

// The folder of data.pkl, such as "archive/".
std::string folder_of(const ZipReader& zip, const std::string& file) {
  std::string folder;
  for (const ZipEntry& entry : zip.entries()) {
    const auto slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != "data.pkl") continue;
    if (!folder.empty()) throw CheckpointError(file, ": has a data.pkl in several folders");
    folder = entry.name.substr(0, slash + 1);
  }
  if (folder.empty()) throw UnsupportedError(file, ": is a zip file without data.pkl, so torch.save did not write it");
  return folder;
}

// Formats a number as Python prints it: with an exponent below 1e-4 and from 1e16 on.
std::string number_text(double number) {
  constexpr std::size_t kLongest = 32;
  char text[kLongest];
  const double size = std::abs(number);
  const bool is_plain = number == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
  const std::string shortest(text, std::to_chars(text, text + kLongest, number, format).ptr);
  return is_plain && shortest.find('.') == std::string::npos ? shortest + ".0" : shortest;
}

// Names the tensors in nested dicts and lists: the name consists of the keys, joined by dots. Keys that are not texts
// are spelled as Python prints them.
class Flatten {
 public:
  Flatten(const Pickle& pickle, std::size_t bytes, const std::string& file)
      : pickle_(pickle), visits_(bytes), letters_(16 * bytes), file_(file) {}

  std::vector<std::pair<std::string, std::uint32_t>> run() {
    visit(pickle_.root, "", 0);
    number_equal_names();
    return std::move(tensors_);
  }

 private:
  using Kind = PickleValue::Kind;

  // Fails because of contents that torch.save may nevertheless have written.
  [[noreturn]] void fail(const std::string& what) const { throw UnsupportedError(file_, ": ", what); }

  // Limits the work: a value that is referenced repeatedly is visited repeatedly, so a short pickle could otherwise
  // take forever.
  void spend(std::size_t& budget, std::size_t amount) const {
    if (amount > budget) fail("its pickle reuses values too often");
    budget -= amount;
  }

  void visit(const PickleValue& value, const std::string& name, int depth) {
    spend(visits_, 1);
    if (value.kind == Kind::TENSOR) tensors_.emplace_back(name, value.index);
    const bool dict = value.kind == Kind::DICT || value.kind == Kind::OBJECT;
    if (!dict && value.kind != Kind::LIST && value.kind != Kind::TUPLE) return;
    if (std::ranges::count(around_, value.index) > 0) fail("its dict or list " + shown(name) + " contains itself");
    if (depth == kDeepest) fail("its dicts are nested too deeply, at " + shown(name));
    around_.push_back(value.index);
    const auto& items = pickle_.items[value.index];
    for (std::size_t i = 0; i < items.size(); i += dict ? 2 : 1) {
      const std::string key = dict ? key_of(items[i], depth) : std::to_string(i);
      spend(letters_, name.size() + key.size() + 1);
      visit(items[dict ? i + 1 : i], name.empty() ? key : join(name, ".", key), depth + 1);
    }
    around_.pop_back();
  }

  std::string key_of(const PickleValue& key, int depth) {
    switch (key.kind) {
      case Kind::STRING:
        return pickle_.strings[key.index];
      case Kind::INTEGER:
        return std::to_string(key.integer);
      case Kind::REAL:
        return number_text(key.real);
      case Kind::BOOL:
        return key.integer != 0 ? "True" : "False";
      case Kind::NONE:
        return "None";
      case Kind::TUPLE:
        return tuple_key(pickle_.items[key.index], depth + 1);
      default:
        return "?";
    }
  }

  std::string tuple_key(const std::vector<PickleValue>& items, int depth) {
    if (depth == kDeepest) fail("a key of its dicts is nested too deeply");
    std::string text = "(";
    for (const PickleValue& item : items) {
      spend(visits_, 1);
      const std::string part = key_of(item, depth);
      spend(letters_, part.size());
      text += (text.size() == 1 ? "" : ", ") + part;
    }
    return text + (items.size() == 1 ? ",)" : ")");
  }

  // Keys may spell one name twice, as in {1: x, "1": y} and {"a.b": x, "a": {"b": y}}. Then no tensor gets that name,
  // so that none is taken for another: they are called "1 [1]" and "1 [2]", or by the next free numbers.
  void number_equal_names() {
    std::map<std::string, int> times, seen;
    for (const auto& [name, index] : tensors_) ++times[name];
    for (auto& [name, index] : tensors_) {
      if (times.at(name) == 1) continue;
      std::string numbered;
      do numbered = join(name, " [", ++seen[name], "]");
      while (times.contains(numbered));
      name = std::move(numbered);
    }
  }

  const Pickle& pickle_;
  std::size_t visits_, letters_;
  const std::string& file_;
  std::vector<std::uint32_t> around_;  // the dicts and lists that contain the visited value
  std::vector<std::pair<std::string, std::uint32_t>> tensors_;
};

void refuse_old_format(const ByteSource& file) {
  unsigned char first = 0;
  if (file.size() > 0) file.read(0, &first, 1);
  if (first == 0x80)
    throw UnsupportedError(file.name(), ": is a bare pickle, as torch.save wrote it before PyTorch 1.6 and still does ",
                           "with _use_new_zipfile_serialization=False; load it in Python and save it without that");
}

const ByteSource& checked(const std::unique_ptr<ByteSource>& source) {
  refuse_old_format(*source);
  return *source;
}

}  // namespace

PtIndex::PtIndex(std::unique_ptr<ByteSource> given, PickleOptions options)
    : source(std::move(given)), zip(checked(source)) {
  const std::string& file = source->name();
  const std::string folder = folder_of(zip, file);
  const ZipEntry* order = zip.find(folder + "byteorder");
  if (order && (order->size > 16 || zip.read(*order) != "little"))
    throw UnsupportedError(file, ": was written on a big-endian machine, which this version cannot read");
  const ZipEntry& data = *zip.find(folder + "data.pkl");
  if (data.size > kMostPickle || (data.size > kSmallest && data.size > source->size()))
    throw CheckpointError(file, ": a pickle of ", data.size, " bytes is too large");
  const std::string bytes = zip.read(data);
  try {
    read(bytes, options);
  } catch (const UnsupportedError&) {
    if (!options.allow_unknown) check_readable_with_unknown(bytes);
    throw;
  }
  for (const PickleStorage& storage : pickle.storages) {
    const ZipEntry* entry = zip.find(folder + "data/" + storage.key);
    if (!entry) throw CheckpointError(file, ": the storage ", shown(storage.key), " is missing");
    if (entry->size / pickled_element_bytes(storage.dtype) < storage.elements)
      throw CheckpointError(file, ": the storage ", shown(storage.key), " has ", entry->size, " bytes, too few for ",
                            storage.elements, " elements of ", storage.dtype);
    storages.push_back(entry);
  }
}

void PtIndex::read(const std::string& bytes, PickleOptions options) {
  const std::string& file = source->name();
  pickle = read_pickle(bytes, file, options);
  tensors = Flatten(pickle, bytes.size(), file).run();
  if (tensors.empty() && !pickle.skipped.empty())
    throw UnsupportedError(file, ": has no tensors outside of objects of other classes, such as ", pickle.skipped,
                           "; save the model's state_dict() in Python");
}

// Before an error recommends allow_unknown, checks whether the file could be read with it (a whole module could not),
// and reports that reason instead.
void PtIndex::check_readable_with_unknown(const std::string& bytes) {
  try {
    read(bytes, {.allow_unknown = true});
  } catch (const UnsupportedError&) {
    throw;
  } catch (const CheckpointError&) {  // NOLINT(bugprone-empty-catch): unsupported contents are found before damage
  }
}

}  // namespace composer::formats
