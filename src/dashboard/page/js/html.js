// Preact with htm: templates are parsed in the page, so nothing has to be built.
import { Fragment, createContext, h, render } from '../vendor/preact.js';
import { useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact-hooks.js';
import htm from '../vendor/htm.js';

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);
export {
  Fragment,
  createContext,
  h,
  render,
  useCallback,
  useContext,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
};
