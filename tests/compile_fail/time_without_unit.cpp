// error: conversion from .*int.* to non-scalar type .*composer::Time
#include "composer/core/time.h"

composer::Time length = 5;
