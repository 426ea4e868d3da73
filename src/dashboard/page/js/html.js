// Preact with htm: templates are parsed in the browser, so the page needs no build step.
import { Component, h, render } from '../vendor/preact.js';
import {
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from '../vendor/preact-hooks.js';
import htm from '../vendor/htm.js';

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);
export { Component, render, useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState };
