#include "composer/data/image/image_folder.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/ops/scalar_tensor.h>

#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/util/letters.h"
#include "composer/util/parallel.h"

namespace composer::data {

// The names of all files one after another: 200,000 are one allocation.
struct ImageFiles::List {
  std::string folder;
  std::string names;
  std::vector<std::uint64_t> ends;  // in `names`, of each
  std::vector<std::int64_t> targets;
  std::vector<std::string> classes;
  ImageFilesOptions options;

  void add(std::string_view name, std::int64_t target) {
    names += name;
    ends.push_back(names.size());
    targets.push_back(target);
  }
  std::filesystem::path file(std::size_t index) const {
    const std::uint64_t begin = index == 0 ? 0 : ends[index - 1];
    return folder / std::filesystem::path(std::string_view(names).substr(begin, ends[index] - begin));
  }
};

namespace {

namespace fs = std::filesystem;
constexpr std::size_t kFew = 3;

std::vector<Option<ImageFilesOptions>> image_files_options() {
  using O = ImageFilesOptions;
  return all_options(part("transform", &O::transform, "transforms"), part("read", &O::read, "options of read_image"),
                     option("scaled_decoding", &O::scaled_decoding), option("verify", &O::verify));
}

std::vector<Option<ImageFolderOptions>> image_folder_options() {
  using O = ImageFolderOptions;
  return all_options(option("extensions", &O::extensions).not_empty(), option("classes", &O::classes),
                     option("recursive", &O::recursive), part("transform", &O::transform, "transforms"),
                     part("read", &O::read, "options of read_image"), option("scaled_decoding", &O::scaled_decoding),
                     option("verify", &O::verify));
}

// "a, b, c and 9 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kFew); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kFew) text += join(" and ", names.size() - kFew, " more");
  return text;
}

bool is_hidden(std::string_view name) { return name.starts_with('.') || name == "Thumbs.db" || name == "desktop.ini"; }

class Lister {
 public:
  Lister(const fs::path& folder, const ImageFolderOptions& options) : folder_(folder), options_(options) {
    for (const std::string& extension : options.extensions) extensions_.push_back(util::lower(extension));
  }

  // The folders in it.
  std::vector<std::string> folders() {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      std::string name = entry.path().filename().string();
      if (is_hidden(name)) continue;
      if (entry.is_directory())
        names.push_back(std::move(name));
      else
        left_out_.push_back(std::move(name));
    }
    std::ranges::sort(names);
    return names;
  }

  // The images in the folder of a class, as their paths below folder_.
  std::vector<std::string> images_of(const std::string& name) {
    std::vector<std::string> images;
    std::size_t above = folder_.native().size();
    if (!folder_.native().ends_with('/')) ++above;
    above_ = {id_of(folder_ / name)};
    constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
    for (fs::recursive_directory_iterator at(folder_ / name, kFollow), end; at != end; ++at) {
      const std::string& path = at->path().native();
      const std::string_view file = std::string_view(path).substr(path.rfind('/') + 1);
      const bool hidden = is_hidden(file);
      if (at->is_directory()) {
        above_.resize(static_cast<std::size_t>(at.depth()) + 1);
        const FolderId id = id_of(at->path());
        if (hidden || !options_.recursive || std::ranges::find(above_, id) != above_.end())
          at.disable_recursion_pending();
        above_.push_back(id);
      } else if (!hidden) {
        const std::string_view below = std::string_view(path).substr(above);
        (is_image(file) ? images : left_out_).emplace_back(below);
      }
    }
    std::ranges::sort(images);
    return images;
  }

  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  bool is_image(std::string_view file) const {
    return std::ranges::any_of(extensions_, [&](const std::string& extension) {
      return file.size() > extension.size() && util::lower(file.substr(file.size() - extension.size())) == extension;
    });
  }

  // Tells folders apart, because links may lead from one into itself.
  using FolderId = std::pair<dev_t, ino_t>;
  static FolderId id_of(const fs::path& folder) {
    struct stat status {};
    return ::stat(folder.c_str(), &status) == 0 ? FolderId(status.st_dev, status.st_ino) : FolderId();
  }

  const fs::path& folder_;
  const ImageFolderOptions& options_;
  std::vector<FolderId> above_;  // from that of the class down to the one that is read
  std::vector<std::string> extensions_, left_out_;
};

// What a class of each number is called. Throws DataError for folders that are none.
std::vector<std::string> classes_of(const fs::path& folder, const std::vector<std::string>& folders,
                                    const std::vector<std::string>& given) {
  if (folders.empty())
    throw DataError("ImageFolder: ", folder.string(), " has no folders; expected one for each class, as in ",
                    (folder / "cat" / "1.jpg").string());
  if (given.empty()) return folders;
  for (const std::string& name : folders)
    if (std::ranges::find(given, name) == given.end())
      throw DataError("ImageFolder: ", folder.string(), " has a folder ", name, ", which is not among the ",
                      given.size(), " classes that were given (", listed(given), ")");
  for (std::size_t i = 0; i < given.size(); ++i)
    if (std::find(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(i), given[i]) !=
        given.begin() + static_cast<std::ptrdiff_t>(i))
      throw ConfigError("ImageFolder: classes has ", given[i], " twice");
  return given;
}

// Calls check(i) for each file, in parallel, and throws DataError if some throw, naming a few.
template <class Check>
void check_files(const char* who, std::size_t count, Check check) {
  constexpr std::int64_t kFilesOfThread = 64;
  std::mutex mutex;
  std::map<std::int64_t, std::string> wrong;  // by number, so that the message does not depend on the threads
  std::size_t number = 0;
  parallel_for(0, static_cast<std::int64_t>(count), kFilesOfThread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) try {
        check(static_cast<std::size_t>(i));
      } catch (const DataError& error) {
        const std::lock_guard lock(mutex);
        ++number;
        wrong.emplace(i, error.what());
        if (wrong.size() > kFew) wrong.erase(std::prev(wrong.end()));
      }
  });
  if (number == 0) return;
  std::string text;
  for (const auto& [file, why] : wrong) text += (text.empty() ? "" : "; ") + why;
  throw DataError(who, ": ", number, " of ", count, " files cannot be used: ", text,
                  number > wrong.size() ? "; and others" : "");
}

}  // namespace

ImageFiles::ImageFiles(std::shared_ptr<const List> list) : list_(std::move(list)) {
  if (list_->options.verify)
    check_files("ImageFolder", list_->targets.size(), [this](std::size_t i) { image_info(list_->file(i)); });
}

ImageFiles::ImageFiles(std::vector<std::filesystem::path> files, std::vector<std::int64_t> targets,
                       ImageFilesOptions options) {
  options = checked("ImageFiles", std::move(options), image_files_options());
  if (files.size() != targets.size())
    throw DataError("ImageFiles: there are ", files.size(), " files and ", targets.size(),
                    " targets; each file needs one");
  auto list = std::make_shared<List>();
  for (std::size_t i = 0; i < files.size(); ++i) list->add(files[i].native(), targets[i]);
  const bool verify = options.verify;
  check_files("ImageFiles", files.size(), [&](std::size_t i) {
    if (verify)
      image_info(files[i]);
    else if (std::error_code error; !fs::is_regular_file(files[i], error))
      throw DataError(files[i].string(), ": there is no such file");
  });
  list->options = std::move(options);
  list_ = std::move(list);
}

ImageFiles::~ImageFiles() = default;
ImageFiles::ImageFiles(const ImageFiles&) = default;
ImageFiles::ImageFiles(ImageFiles&&) noexcept = default;
ImageFiles& ImageFiles::operator=(const ImageFiles&) = default;
ImageFiles& ImageFiles::operator=(ImageFiles&&) noexcept = default;

std::int64_t ImageFiles::size() const { return static_cast<std::int64_t>(list_->targets.size()); }

std::filesystem::path ImageFiles::file(std::int64_t index) const {
  if (index < 0 || index >= size()) throw DataError("ImageFiles: there is no file ", index, " of ", size());
  return list_->file(static_cast<std::size_t>(index));
}

const std::vector<std::int64_t>& ImageFiles::targets() const { return list_->targets; }

Sample ImageFiles::get(std::int64_t index, RandomStream random) const {
  const fs::path from = file(index);
  const ImageFilesOptions& options = list_->options;
  at::Tensor image;
  if (options.scaled_decoding && options.read.at_least == ImageSize())
    image = detail::read_image(from, options.read,
                               [&](ImageSize whole) { return options.transform.enough(whole, random); });
  else
    image = read_image(from, options.read);
  try {
    image = options.transform(image, random);
  } catch (...) {
    throw_nested<DataError>(from.string(), ": cannot be transformed");
  }
  return {{"input", image}, {"target", at::scalar_tensor(list_->targets[static_cast<std::size_t>(index)], at::kLong)}};
}

ImageFolder::ImageFolder(const fs::path& folder, ImageFolderOptions options)
    : ImageFiles(list_of(folder, std::move(options))) {}

std::shared_ptr<const ImageFiles::List> ImageFolder::list_of(const fs::path& folder, ImageFolderOptions options) try {
  options = checked("ImageFolder", std::move(options), image_folder_options());
  if (std::error_code error; !fs::is_directory(folder, error))
    throw DataError("ImageFolder: ", folder.string(), " is not a folder");
  auto list = std::make_shared<List>();
  Lister lister(folder, options);
  const std::vector<std::string> folders = lister.folders();
  list->folder = folder.string();
  list->classes = classes_of(folder, folders, options.classes);
  for (std::size_t number = 0; number < list->classes.size(); ++number) {
    const std::string& name = list->classes[number];
    if (!std::ranges::binary_search(folders, name)) continue;
    const std::vector<std::string> images = lister.images_of(name);
    if (images.empty())
      throw DataError("ImageFolder: ", (folder / name).string(), " contains no images (", listed(options.extensions),
                      "); remove the folder if there is no such class");
    for (const std::string& image : images) list->add(image, static_cast<std::int64_t>(number));
  }
  if (const auto& left_out = lister.left_out(); !left_out.empty())
    warn(join("ImageFolder: ", folder.string(), ": left out ", left_out.size(),
              " files that are no images of a class: ", listed(left_out)));
  list->options = {.transform = std::move(options.transform),
                   .read = options.read,
                   .scaled_decoding = options.scaled_decoding,
                   .verify = options.verify};
  return list;
} catch (const fs::filesystem_error& error) {
  throw DataError("ImageFolder: ", error.path1().string(), ": cannot be listed: ", error.code().message());
}

ImageFolder::~ImageFolder() = default;
ImageFolder::ImageFolder(const ImageFolder&) = default;
ImageFolder::ImageFolder(ImageFolder&&) noexcept = default;
ImageFolder& ImageFolder::operator=(const ImageFolder&) = default;
ImageFolder& ImageFolder::operator=(ImageFolder&&) noexcept = default;

const std::vector<std::string>& ImageFolder::classes() const { return list_->classes; }

}  // namespace composer::data
