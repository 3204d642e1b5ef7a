// Precompiled: what most test files and handlers pay for. Not doctest, which every program that includes it must link.
#pragma once
#include <nlohmann/json.hpp>

#include "composer/pch.h"
