#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/data/image/read_image.h"
#include "composer/data/image/transforms.h"
#include "composer/data/map_style.h"

namespace composer::data {

struct ImageFilesOptions {
  Transforms transform = {};    // applied to each image; without any, a sample is the uint8 image
  ReadImageOptions read = {};   // how files are decoded
  bool scaled_decoding = true;  // decode a JPEG smaller if the first transform needs at most half of its size
  bool verify = false;          // read the header of each file at once, and name those that are damaged
};

// Files of images and what each shows, for map_style(). With scaled_decoding, a JPEG keeps at least twice the pixels
// that the first transform needs, if that is a Resize or RandomResizedCrop with antialiasing and read.at_least is not
// set. This is several times faster for photographs; pixels differ slightly. A sample has "input", uint8 [C, H, W] or
// what the transforms make of it, and "target", an int64. Copies share the list.
class COMPOSER_EXPORT ImageFiles {
 public:
  // Throws DataError if a file does not exist or, with `verify`, is damaged, or if the numbers of files and targets
  // differ.
  ImageFiles(std::vector<std::filesystem::path> files, std::vector<std::int64_t> targets,
             ImageFilesOptions options = {});
  ~ImageFiles();
  ImageFiles(const ImageFiles&);
  ImageFiles(ImageFiles&&) noexcept;
  ImageFiles& operator=(const ImageFiles&);
  ImageFiles& operator=(ImageFiles&&) noexcept;

  std::int64_t size() const;
  Sample get(std::int64_t index, RandomStream random) const;  // thread-safe
  std::filesystem::path file(std::int64_t index) const;
  const std::vector<std::int64_t>& targets() const;  // one for each file

 protected:
  struct List;
  explicit ImageFiles(std::shared_ptr<const List> list);
  std::shared_ptr<const List> list_;
};

struct ImageFolderOptions {
  // which files are images, by the ends of their names in any case
  std::vector<std::string> extensions = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm"};
  std::vector<std::string> classes = {};  // the folders in the order of their numbers; empty: all, sorted by name
  bool recursive = true;                  // images may lie in folders below that of their class
  Transforms transform = {};              // applied to each image; without any, a sample is the uint8 image
  ReadImageOptions read = {};             // how files are decoded
  bool scaled_decoding = true;            // decode a JPEG smaller if the first transform needs at most half of its size
  bool verify = false;                    // read the header of each file at once, and name those that are damaged
};

// Images in one folder for each class: FOLDER/cat/1.jpg, FOLDER/dog/2.jpg. The target of an image is the number of its
// class.
class COMPOSER_EXPORT ImageFolder : public ImageFiles {
 public:
  // Lists the files, sorted by name. Throws DataError if the folder is missing or has no folders, a class has no
  // images, or there is a folder that is not among `classes`; classes that are given may have no folder. Warns of files
  // that are left out, except for hidden ones.
  explicit ImageFolder(const std::filesystem::path& folder, ImageFolderOptions options = {});
  ~ImageFolder();
  ImageFolder(const ImageFolder&);
  ImageFolder(ImageFolder&&) noexcept;
  ImageFolder& operator=(const ImageFolder&);
  ImageFolder& operator=(ImageFolder&&) noexcept;

  const std::vector<std::string>& classes() const;

 private:
  static std::shared_ptr<const List> list_of(const std::filesystem::path& folder, ImageFolderOptions options);
};

}  // namespace composer::data
